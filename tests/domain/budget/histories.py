"""A history of commands, played on three books at once: a naive model, a state that lives on, and one that is partial.

The partial one is loaded anew for each step from what was flushed. All three must agree on the outcome, on every balance
and on what is told; and the rows that were flushed must add up to the balances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from domain.amounts import INT64_MAX, Amount, Unit
from domain.budget.commands import Fund
from domain.budget.decisions import decide, reads_of
from domain.budget.events import BudgetEvent
from domain.budget.invariants import check_invariants
from domain.budget.records import Budget, FundingOperation, Tenant, TenantStatus
from domain.budget.replay import Repeated
from domain.budget.settlement import advance
from domain.budget.state import BudgetState, Changes
from domain.budget.values import OveragePolicy, Subject
from domain.outcomes import Accepted, Refusal
from tests.domain.budget.books import OPERATOR, START, TENANT_ID, Books
from tests.domain.budget.model import Model
from tests.domain.budget.rows import Rows

SUBJECTS: list[dict[str, Any]] = [
    {"tenant": "acme"},
    {"tenant": "acme", "agent": "Bot"},
    {"tenant": "acme", "workspace": "w", "agent": "bot"},
    {"workspace": "w"},
]
SCOPES = [
    "tenant:acme",
    "tenant:acme/agent:bot",
    "tenant:acme/workspace:w",
    "tenant:acme/workspace:w/agent:bot",
]
LEDGERS = [(scope, unit) for scope in (*SCOPES, "workspace:w") for unit in ("TOKENS", "CREDITS")]

KINDS = ["CREDIT", "CREDIT", "DEBIT", "RESET", "RESET_SPENT", "REPAY_DEBT"]
POLICIES = ["REJECT", "ALLOW_IF_AVAILABLE", "ALLOW_WITH_OVERDRAFT", "ALLOW_WITH_OVERDRAFT"]
UNITS = ["TOKENS"] * 9 + ["CREDITS"]
WEIGHTS = {
    "reserve": 24,
    "commit": 18,
    "debit": 8,
    "fund": 8,
    "wait": 8,
    "extend": 6,
    "release": 5,
    "evaluate": 3,
    "relimit": 3,
    "create": 2,
    "turn": 2,
    "tenant": 3,
    "again": 6,
}


class Choice(Protocol):
    """What both a `random.Random` and Hypothesis' own, which can shrink, are able to do."""

    def choice(self, among: Sequence[Any], /) -> Any: ...
    def randint(self, least: int, most: int, /) -> int: ...


def amount_of(chance: Choice) -> int:
    most = chance.choice([12, 12, 120, 120, 120, 700, 0])
    return chance.randint(0, most) if most else int(chance.choice([INT64_MAX, INT64_MAX - 60]))


def step_of(chance: Choice) -> dict[str, Any]:
    """One step; a key of None is one of its own, and `hold` counts back from the newest."""
    operation = chance.choice([name for name, weight in WEIGHTS.items() for _ in range(weight)])
    fields: dict[str, Callable[[], Any]] = {
        "subject": lambda: chance.choice(SUBJECTS),
        "unit": lambda: chance.choice(UNITS),
        "amount": lambda: amount_of(chance),
        "ttl": lambda: chance.choice([1_000, 5_000, 60_000]),
        "grace": lambda: chance.choice([0, 500, 5_000]),
        "policy": lambda: chance.choice(POLICIES),
        "dry": lambda: chance.choice([False, False, False, True]),
        "key": lambda: chance.choice([None] * 20 + ["k1", "k2"]),
        "hold": lambda: chance.choice([0, 0, 0, 1, 1, 2, 3, 5]),
        "back": lambda: chance.randint(1, 4),
        "by": lambda: chance.choice([1, 4_000]),
        "scope": lambda: chance.choice(SCOPES),
        "kind": lambda: chance.choice(KINDS),
        "spent": lambda: chance.choice([None, None, 0, 70, INT64_MAX]),
        "status": lambda: chance.choice(["FROZEN"] * 4 + ["ACTIVE"] * 7 + ["CLOSED"]),
        "limit": lambda: chance.choice([0, 30, 500, INT64_MAX]),
        "allocated": lambda: amount_of(chance),
        "ms": lambda: chance.choice([1, 499, 500, 501, 1_000, 4_999, 30_000]),
    }
    step = {"do": operation} | {name: fields[name]() for name in FIELDS[operation]}
    if operation == "tenant":
        step["status"] = chance.choice(["ACTIVE", "ACTIVE", "ACTIVE", "SUSPENDED"])
    return step


FIELDS = {
    "reserve": ("subject", "unit", "amount", "ttl", "grace", "policy", "dry", "key"),
    "evaluate": ("subject", "unit", "amount", "key"),
    "commit": ("hold", "unit", "amount", "key"),
    "release": ("hold", "key"),
    "extend": ("hold", "by", "key"),
    "debit": ("subject", "unit", "amount", "policy", "key"),
    "fund": ("scope", "unit", "kind", "amount", "spent", "key"),
    "turn": ("scope", "unit", "status"),
    "relimit": ("scope", "unit", "limit"),
    "create": ("scope", "unit", "allocated", "limit"),
    "tenant": (),
    "wait": ("ms",),
    "again": ("back",),
}


def opening_of(chance: Choice) -> dict[tuple[str, str], tuple[int, int]]:
    """Most scopes have a budget in tokens; some have one in credits."""
    found = {}
    for ledger in LEDGERS:
        if chance.randint(0, 9) < (8 if ledger[1] == "TOKENS" else 3):
            limit = chance.choice([0, 0, 50, 500, INT64_MAX])
            found[ledger] = (chance.choice([0, 10, 100, 300, 1_000, 5_000, INT64_MAX]), limit)
    return found


class Trial:
    """One history, played on the three of them."""

    def __init__(self, opening: dict[tuple[str, str], tuple[int, int]]) -> None:
        self.books = Books(tenant=Tenant(tenant_id=TENANT_ID))
        self.model = Model(START)
        budgets = []
        for (scope, unit), (allocated, limit) in sorted(opening.items()):
            budgets.append(_budget(scope, unit, allocated, limit))
            self.model.ledgers[scope, unit] = {"limit": limit, "status": "ACTIVE", "capped": False}
            self.model.journal.append(((scope, unit), "allocated", allocated))
        self.state = BudgetState(Tenant(tenant_id=TENANT_ID), budgets, is_complete=True)
        self.rows = Rows(self.state.tenant, budgets)
        self.now = START
        self.made: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Keyed requests, to send them again."""
        self.number = 0
        self.decided: tuple[Any, Any, Changes] | None = None
        """Of the last step: the command, its outcome, and what it would flush; None when nothing was asked."""

    def play(self, step: dict[str, Any]) -> str:
        """Decide one step thrice and compare. Returns what became of it."""
        self.number += 1
        self.decided = None
        arguments = dict(step)
        operation = arguments.pop("do")
        if operation == "wait":
            self.now += arguments["ms"]
            self.model.now = self.now
            return "waited"
        if operation == "again":
            if len(self.asked) < arguments["back"]:
                return "nothing to repeat"
            operation, arguments = self.asked[-arguments["back"]]
        elif "hold" in arguments:
            arguments["hold"] = self._hold(arguments["hold"])
        if "key" in arguments:
            arguments["key"] = arguments["key"] or f"own-{self.number}"
            self.asked.append((operation, arguments))
        new_id = {"new_id": f"id_{self.number:04}"} if operation in {"reserve", "debit", "fund"} else {}
        expected = self.model.run(operation, **arguments, **new_id)
        command = command_of(self.books, operation, f"id_{self.number:04}", **arguments)
        outcome = self._decide(command)
        assert _said(operation, outcome) == expected, (step, outcome)
        if operation == "reserve" and isinstance(outcome, Accepted) and outcome.answer.reservation_id:
            self.made.append(outcome.answer.reservation_id)
        self._compare()
        return expected[0] if expected[0] != "refused" else str(expected[1][0])

    def _hold(self, back: int) -> str:
        """Mostly one that is active, sometimes one that is over."""
        active = [name for name in self.made if self.model.holds[name]["status"] == "ACTIVE"]
        among = active if active and back else self.made
        return among[-1 - back % len(among)] if among else "rsv_unknown"

    def _decide(self, command: Any) -> Any:
        before = {key: row.balance() for key, row in self.rows.budgets.items()}
        partial = self.rows.load(reads_of(command), self.now)
        outcomes = []
        for state in (self.state, partial):
            expired = advance(state, self.now)
            outcomes.append(decide(state, command, self.now))
        check_invariants(self.state)
        check_invariants(partial)
        assert outcomes[0] == outcomes[1], "the partial state decides otherwise"
        changes = self.state.take_changes()
        assert changes == partial.take_changes(), "the partial state flushes something else"
        assert _heard(changes.events) == sorted(self.model.told, key=repr)
        self.rows.flush(self.state, changes)
        if not isinstance(outcomes[0], Accepted) and not expired:
            after = {key: row.balance() for key, row in self.rows.budgets.items()}
            assert after == before, "a refusal or replay moved a balance (I7)"
            assert not changes.remembered
        self.decided = command, outcomes[0], changes
        return outcomes[0]

    def _compare(self) -> None:
        expected = self.model.balances()
        for (scope, unit), row in self.rows.budgets.items():
            found = (row.allocated, row.reserved, row.spent, row.debt, row.remaining, row.is_over_limit)
            assert found == expected[scope, unit.value], (scope, unit)
        live = {(row.scope_path, row.unit): row.balance() for row in self.state.all_budgets()}
        assert live == {key: row.balance() for key, row in self.rows.budgets.items()}, "a change missed the flush"
        amounts = {key: (held.allocated, held.reserved, held.spent, held.debt) for key, held in live.items()}
        assert amounts == self.rows.recount(), "the rows do not add up"
        statuses = {name: hold["status"] for name, hold in self.model.holds.items()}
        assert {name: held.status.value for name, held in self.rows.reservations.items()} == statuses


def _budget(scope: str, unit: str, allocated: int, limit: int) -> Budget:
    return Budget(
        budget_id=f"ldg_{scope}_{unit}",
        scope_path=scope,
        unit=Unit(unit),
        allocated=allocated,
        overdraft_limit=limit,
        created_at=START,
    )


def command_of(books: Books, operation: str, new_id: str, **given: Any) -> Any:
    """The step in our words."""
    unit = Unit(given.get("unit", "TOKENS"))
    key = {"idempotency_key": given["key"]} if "key" in given else {}
    subject = Subject(**given.get("subject", {}))
    policy = OveragePolicy(given["policy"]) if "policy" in given else None
    if operation == "reserve":
        return books.reserve(
            given["amount"],
            subject,
            unit=unit,
            reservation_id=new_id,
            ttl_ms=given["ttl"],
            grace_ms=given["grace"],
            overage_policy=policy,
            dry_run=given["dry"],
            **key,
        )
    if operation == "evaluate":
        return books.evaluate(given["amount"], subject, unit=unit, **key)
    if operation == "debit":
        return books.debit(given["amount"], subject, unit=unit, debit_id=new_id, overage_policy=policy, **key)
    if operation == "commit":
        return books.commit(given["hold"], given["amount"], unit=unit, **key)
    if operation == "release":
        return books.release(given["hold"], **key)
    if operation == "extend":
        return books.extend(given["hold"], given["by"], **key)
    if operation == "tenant":
        return books.set_tenant(TenantStatus(given["status"]))
    return _governance(books, operation, new_id, unit, given)


def _governance(books: Books, operation: str, new_id: str, unit: Unit, given: dict[str, Any]) -> Any:
    scope = given["scope"]
    if operation == "fund":
        return Fund(
            tenant_id=TENANT_ID,
            origin=OPERATOR,
            idempotency_key=given["key"],
            funding_id=new_id,
            scope=scope,
            unit=unit,
            kind=FundingOperation(given["kind"]),
            amount=Amount(unit, given["amount"]),
            spent=None if given["spent"] is None else Amount(unit, given["spent"]),
        )
    if operation == "create":
        limit = Amount(unit, given["limit"])
        return books.create_budget(scope, given["allocated"], unit=unit, overdraft_limit=limit)
    if operation == "relimit":
        return replace(books.update_budget(scope, overdraft_limit=Amount(unit, given["limit"])), unit=unit)
    ways = {"FROZEN": books.freeze, "ACTIVE": books.unfreeze, "CLOSED": books.close}
    return replace(ways[given["status"]](scope), unit=unit)


def _said(operation: str, outcome: Any) -> tuple[str, Any]:
    """Our outcome in the model's words."""
    if isinstance(outcome, Refusal):
        return "refused", (outcome.code, getattr(outcome, "scope", None))
    word = "repeated" if isinstance(outcome, Repeated) else "accepted"
    answer = outcome.answer
    if operation == "reserve":
        said = {"decision": answer.decision.value, "reason": answer.reason_code, "id": answer.reservation_id}
        if answer.reservation_id is not None:
            said |= {"expires": answer.expires_at, "lead": answer.remaining_ttl_ms}
        return word, said
    if operation == "evaluate":
        return word, {"decision": answer.decision.value, "reason": answer.reason_code}
    if operation == "commit":
        return word, {"charged": answer.charged, "released": answer.released}
    if operation == "release":
        return word, {"released": answer.released}
    if operation == "extend":
        return word, {"id": answer.reservation_id, "expires": answer.expires_at, "lead": answer.remaining_ttl_ms}
    if operation == "debit":
        return word, {"charged": answer.charged}
    if operation == "fund":
        return word, {"remaining": answer.after.remaining, "debt": answer.after.debt}
    return word, {}


def _heard(events: list[BudgetEvent]) -> list[tuple[Any, ...]]:
    """Our events in the model's words."""
    words = {
        "budget.threshold_crossed": ("threshold_millionths", "direction"),
        "budget.debt_incurred": ("debt_incurred",),
        "reservation.denied": ("reason_code", "requested_amount"),
        "reservation.released_via_tenant_cascade": ("released_amount",),
        "reservation.commit_overage": ("reservation_id", "overage", "debt_incurred"),
        "reservation.expired": ("reservation_id",),
    }
    heard = []
    for event in events:
        data, kind = event.facts.data(), event.type.value
        about = () if kind in {"reservation.commit_overage", "reservation.expired"} else (event.scope,)
        heard.append((kind, *about, *(data[name] for name in words.get(kind, ()))))
    return sorted(heard, key=repr)


def play_all(chance: Choice, length: int) -> Trial:
    trial = Trial(opening_of(chance))
    while trial.number < length:
        step = step_of(chance)
        if "hold" not in step or trial.made or chance.randint(0, 9) == 0:
            trial.play(step)
    return trial
