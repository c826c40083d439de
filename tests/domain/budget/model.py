"""A naive model of one tenant's budgets, written from the rules alone: it imports nothing of ours.

Every operation takes plain values and answers ("accepted" or "repeated", a dict) or ("refused", (code, scope)).
"""

from __future__ import annotations

import json
from typing import Any

from tests.domain.budget.model_books import MOST, Ledger, NaiveBooks, Refused

LEVELS = ["tenant", "workspace", "app", "workflow", "agent", "toolset"]


class Model(NaiveBooks):
    # -- the frame of every operation ----------------------------------------------------------------------------

    def run(self, operation: str, **arguments: Any) -> tuple[str, Any]:
        """("accepted" | "repeated", answer) or ("refused", (code, scope)); `told` is what it told."""
        self.told = []
        self.expire()
        key = arguments.pop("key", None)
        where = (operation, str(arguments.get("hold", "")), key or "")
        hold = arguments.get("hold")
        try:
            if hold is not None and hold not in self.holds:
                raise Refused("NOT_FOUND")
            if key is not None and where in self.memory:
                content, answer = self.memory[where]
                if content != self.content(arguments):
                    raise Refused("IDEMPOTENCY_MISMATCH")
                return "repeated", self.freshened(answer)
            before = self.marks()
            content = self.content(arguments)
            answer = getattr(self, operation)(**arguments)
        except Refused as refusal:
            return "refused", (refusal.code, refusal.scope)
        if operation != "tenant":  # a cascade tells of itself, not of each balance that it drains
            self.compare(before)
        if key is not None:
            self.memory[where] = (content, answer)
        return "accepted", answer

    def content(self, arguments: dict[str, Any]) -> str:
        return json.dumps({name: value for name, value in arguments.items() if name != "new_id"}, sort_keys=True)

    def freshened(self, answer: dict[str, Any]) -> dict[str, Any]:
        if answer.get("id") is None or "lead" not in answer:
            return answer
        active = self.holds[answer["id"]]["status"] == "ACTIVE"
        return answer | {"lead": max(0, answer["expires"] - self.now) if active else 0}

    # -- guards --------------------------------------------------------------------------------------------------

    def open_for_new_work(self) -> None:
        self.not_closed()
        if self.status == "SUSPENDED":
            raise Refused("TENANT_SUSPENDED")

    def not_closed(self) -> None:
        if self.status == "CLOSED":
            raise Refused("TENANT_CLOSED")

    def paths(self, subject: dict[str, str]) -> list[str]:
        parts = [f"{level}:{subject[level].lower()}" for level in LEVELS if subject.get(level)]
        return ["/".join(parts[: end + 1]) for end in range(len(parts))]

    def taking_part(self, paths: list[str], unit: str) -> list[Ledger]:
        return [(path, unit) for path in paths if (path, unit) in self.ledgers]

    def nothing_takes_part(self, paths: list[str]) -> Refused:
        for path in paths:
            if any(ledger[0] == path for ledger in self.ledgers):
                return Refused("UNIT_MISMATCH", path)
        return Refused("BUDGET_NOT_FOUND", paths[-1])

    def frozen_or_closed(self, ledger: Ledger) -> None:
        if self.ledgers[ledger]["status"] != "ACTIVE":
            raise Refused(f"BUDGET_{self.ledgers[ledger]['status']}", ledger[0])

    def admit(self, paths: list[str], unit: str, amount: int) -> list[Ledger]:
        self.open_for_new_work()
        ledgers = self.taking_part(paths, unit)
        for ledger in ledgers:
            self.frozen_or_closed(ledger)
            if self.over(ledger):
                raise Refused("OVERDRAFT_LIMIT_EXCEEDED", ledger[0])
            if self.remaining(ledger) < amount:
                raise Refused("BUDGET_EXCEEDED", ledger[0])
        if not ledgers:
            raise self.nothing_takes_part(paths)
        return ledgers

    def active(self, hold: dict[str, Any]) -> None:
        if hold["status"] == "EXPIRED":
            raise Refused("RESERVATION_EXPIRED")
        if hold["status"] != "ACTIVE":
            raise Refused("RESERVATION_FINALIZED")

    def denied(self, paths: list[str], amount: int, refusal: Refused) -> None:
        self.told.append(("reservation.denied", refusal.scope or paths[-1], refusal.code, amount))

    # -- operations ----------------------------------------------------------------------------------------------

    def reserve(
        self,
        *,
        new_id: str,
        subject: dict[str, str],
        unit: str,
        amount: int,
        ttl: int,
        grace: int,
        policy: str,
        dry: bool,
    ) -> dict[str, Any]:
        paths = self.paths(subject)
        try:
            ledgers = self.admit(paths, unit, amount)
        except Refused as refusal:
            if refusal.code == "UNIT_MISMATCH":
                raise
            self.denied(paths, amount, refusal)
            if not dry:
                raise
            return {"decision": "DENY", "reason": refusal.code, "id": None}
        if dry:
            return {"decision": "ALLOW", "reason": None, "id": None}
        expires = self.now + min(ttl, 3_600_000)
        self.holds[new_id] = {
            "id": new_id,
            "path": paths[-1],
            "status": "ACTIVE",
            "unit": unit,
            "estimate": amount,
            "scopes": [ledger[0] for ledger in ledgers],
            "policy": policy,
            "expires": expires,
            "until": expires + grace,
            "grace": grace,
            "extended": 0,
        }
        return {"decision": "ALLOW", "reason": None, "id": new_id, "expires": expires, "lead": expires - self.now}

    def evaluate(self, *, subject: dict[str, str], unit: str, amount: int) -> dict[str, Any]:
        paths = self.paths(subject)
        try:
            self.admit(paths, unit, amount)
        except Refused as refusal:
            if refusal.code == "UNIT_MISMATCH":
                raise
            self.denied(paths, amount, refusal)
            return {"decision": "DENY", "reason": refusal.code}
        return {"decision": "ALLOW", "reason": None}

    def commit(self, *, hold: str, unit: str, amount: int) -> dict[str, Any]:
        row = self.holds[hold]
        self.not_closed()
        self.active(row)
        if unit != row["unit"]:
            raise Refused("UNIT_MISMATCH")
        estimate, ledgers = row["estimate"], [(path, row["unit"]) for path in row["scopes"]]
        extra = amount - estimate
        if extra > 0 and row["policy"] == "REJECT":
            raise Refused("BUDGET_EXCEEDED", row["path"])
        more, debts = self.overage(ledgers, extra, row["policy"]) if extra > 0 else (0, dict.fromkeys(ledgers, 0))
        charged = min(amount, estimate) + more
        changes = [(ledger, "spent", charged - debts[ledger]) for ledger in ledgers]
        changes += [(ledger, "debt", debts[ledger]) for ledger in ledgers]
        self.ranges_hold(changes, released=estimate)
        if extra > 0:
            self.told.append(("reservation.commit_overage", hold, extra, min(sum(debts.values()), MOST)))
            self.tell_debts(debts)
            self.mark_cut(ledgers, extra, more, row["policy"])
        self.journal += changes
        row["status"] = "COMMITTED"
        return {"charged": charged, "released": estimate - charged if charged < estimate else None}

    def overage(self, ledgers: list[Ledger], extra: int, policy: str) -> tuple[int, dict[Ledger, int]]:
        """How much of the extra is charged, and how much of that is debt on each ledger."""
        more = extra
        for ledger in ledgers:
            if policy == "ALLOW_IF_AVAILABLE" or self.ledgers[ledger]["limit"] == 0:
                more = min(more, max(self.remaining(ledger), 0))
        debts = dict.fromkeys(ledgers, 0)
        if policy == "ALLOW_WITH_OVERDRAFT":
            for ledger in ledgers:
                limit, remaining = self.ledgers[ledger]["limit"], self.remaining(ledger)
                if limit > 0 and remaining < more:
                    debts[ledger] = more - max(remaining, 0)
                    if self.column(ledger, "debt") + debts[ledger] > limit:
                        raise Refused("OVERDRAFT_LIMIT_EXCEEDED", ledger[0])
        return more, debts

    def mark_cut(self, ledgers: list[Ledger], extra: int, more: int, policy: str) -> None:
        if more == extra:
            return
        for ledger in ledgers:
            bounded = policy == "ALLOW_IF_AVAILABLE" or self.ledgers[ledger]["limit"] == 0
            if bounded and self.remaining(ledger) < extra:
                self.ledgers[ledger]["capped"] = True

    def tell_debts(self, debts: dict[Ledger, int]) -> None:
        self.told += [("budget.debt_incurred", ledger[0], debt) for ledger, debt in debts.items() if debt]

    def release(self, *, hold: str) -> dict[str, Any]:
        row = self.holds[hold]
        self.not_closed()
        self.active(row)
        row["status"] = "RELEASED"
        return {"released": row["estimate"]}

    def extend(self, *, hold: str, by: int) -> dict[str, Any]:
        row = self.holds[hold]
        self.open_for_new_work()
        self.active(row)
        if self.now > row["expires"]:
            raise Refused("RESERVATION_EXPIRED")
        if row["extended"] == 10:
            raise Refused("MAX_EXTENSIONS_EXCEEDED")
        row["extended"] += 1
        row["expires"] += by
        row["until"] = row["expires"] + row["grace"]
        return {"id": hold, "expires": row["expires"], "lead": row["expires"] - self.now}

    def debit(self, *, new_id: str, subject: dict[str, str], unit: str, amount: int, policy: str) -> dict[str, Any]:
        self.open_for_new_work()
        paths = self.paths(subject)
        ledgers = self.taking_part(paths, unit)
        for ledger in ledgers:
            self.frozen_or_closed(ledger)
            if policy == "REJECT" and self.remaining(ledger) < amount:
                raise Refused("BUDGET_EXCEEDED", ledger[0])
        if not ledgers:
            raise self.nothing_takes_part(paths)
        charged, debts = self.overage(ledgers, amount, policy)
        changes = [(ledger, "spent", charged - debts[ledger]) for ledger in ledgers]
        changes += [(ledger, "debt", debts[ledger]) for ledger in ledgers]
        self.ranges_hold(changes)
        self.tell_debts(debts)
        self.mark_cut(ledgers, amount, charged, policy)
        self.journal += changes
        return {"charged": charged}

    def fund(self, *, new_id: str, scope: str, unit: str, kind: str, amount: int, spent: int | None) -> dict[str, Any]:
        self.not_closed()
        ledger = self.existing(scope, unit)
        self.frozen_or_closed(ledger)
        if kind == "DEBIT" and self.remaining(ledger) < amount:
            raise Refused("BUDGET_EXCEEDED", scope)
        changes = self.funding(ledger, kind, amount, spent)
        self.ranges_hold(changes)
        self.journal += changes
        if kind != "DEBIT":
            self.ledgers[ledger]["capped"] = False
        self.told.append((FUNDING_EVENTS[kind], scope))
        return {"remaining": self.remaining(ledger), "debt": self.column(ledger, "debt")}

    def funding(self, ledger: Ledger, kind: str, amount: int, spent: int | None) -> list[tuple[Ledger, str, int]]:
        allocated, debt = self.column(ledger, "allocated"), self.column(ledger, "debt")
        repaid = min(debt, amount)
        if kind == "CREDIT":
            return [(ledger, "allocated", amount), (ledger, "debt", -repaid), (ledger, "spent", repaid)]
        if kind == "DEBIT":
            return [(ledger, "allocated", -amount)]
        if kind == "RESET":
            return [(ledger, "allocated", amount - allocated)]
        if kind == "RESET_SPENT":
            again = (spent or 0) - self.column(ledger, "spent")
            return [(ledger, "allocated", amount - allocated), (ledger, "spent", again)]
        return [(ledger, "debt", -repaid), (ledger, "allocated", amount - repaid)]

    def existing(self, scope: str, unit: str) -> Ledger:
        if (scope, unit) not in self.ledgers:
            raise Refused("BUDGET_NOT_FOUND", scope)
        return scope, unit

    def create(self, *, scope: str, unit: str, allocated: int, limit: int) -> dict[str, Any]:
        self.not_closed()
        if self.status == "SUSPENDED":
            raise Refused("INVALID_INPUT")
        if (scope, unit) in self.ledgers:
            raise Refused("DUPLICATE_RESOURCE")
        self.ledgers[scope, unit] = {"limit": limit, "status": "ACTIVE", "capped": False}
        self.journal.append(((scope, unit), "allocated", allocated))
        self.told.append(("budget.created", scope))
        return {}

    def relimit(self, *, scope: str, unit: str, limit: int) -> dict[str, Any]:
        self.not_closed()
        ledger = self.existing(scope, unit)
        if self.ledgers[ledger]["status"] == "CLOSED":
            raise Refused("BUDGET_CLOSED", scope)
        self.ledgers[ledger] |= {"limit": limit, "capped": False}
        self.told.append(("budget.updated", scope))
        return {}

    def turn(self, *, scope: str, unit: str, status: str) -> dict[str, Any]:
        """Freeze (FROZEN), unfreeze (ACTIVE) or close (CLOSED)."""
        self.not_closed()
        ledger = self.existing(scope, unit)
        current = self.ledgers[ledger]["status"]
        if current == "CLOSED":
            raise Refused("BUDGET_CLOSED", scope)
        if current == status:
            raise Refused(
                "BUDGET_FROZEN" if current == "FROZEN" else "INVALID_STATE", scope if status == "FROZEN" else None
            )
        self.ledgers[ledger]["status"] = status
        self.told.append((TURN_EVENTS[status], scope))
        return {}

    def tenant(self, *, status: str) -> dict[str, Any]:
        if self.status == "CLOSED" and status == "CLOSED":
            return {}
        self.not_closed()
        if status == "CLOSED":
            self.cascade()
        if status != self.status:
            self.told.append((TENANT_EVENTS[status], None))
        self.status = status
        return {}

    def cascade(self) -> None:
        drained = {ledger: self.column(ledger, "reserved") for ledger in self.ledgers}
        for hold in self.holds.values():
            if hold["status"] == "ACTIVE":
                hold["status"] = "RELEASED"
        for ledger, amount in drained.items():
            if amount:
                self.told.append(("reservation.released_via_tenant_cascade", ledger[0], amount))
            if self.ledgers[ledger]["status"] != "CLOSED":
                self.ledgers[ledger]["status"] = "CLOSED"
                self.told.append(("budget.closed_via_tenant_cascade", ledger[0]))


FUNDING_EVENTS = {
    "CREDIT": "budget.funded",
    "DEBIT": "budget.debited",
    "RESET": "budget.reset",
    "RESET_SPENT": "budget.reset_spent",
    "REPAY_DEBT": "budget.debt_repaid",
}
TURN_EVENTS = {"ACTIVE": "budget.unfrozen", "FROZEN": "budget.frozen", "CLOSED": "budget.closed"}
TENANT_EVENTS = {"ACTIVE": "tenant.reactivated", "SUSPENDED": "tenant.suspended", "CLOSED": "tenant.closed"}
