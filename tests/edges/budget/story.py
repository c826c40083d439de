"""Stories about budgets as data: what there is, what is asked step by step, and what must come of each step.

A step's `gives` is a part of the answer, or what it is refused with; `books` is how budgets stand afterwards, as
the same edge shows them. After every step every budget of the story adds up (I1; scenario 43).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

from domain.amounts import Amount, Unit
from domain.budget.values import Caps
from tests.edges.budget.edge import Answer, BudgetEdge, Fields, Refused
from tests.edges.cycles.world import ACME, ADMIN, BOT, OPERATOR, TENANT, TOKENS, World
from workers.schedule import EXPIRY

P: Final = TENANT
C: Final = BOT
"""The parent and the child of the rules' examples."""
WHOLE: Final = {"tenant": ACME}
AGENT: Final = {"tenant": ACME, "agent": "bot"}
CALL: Final = {"kind": "llm.completion", "name": "model"}
REJECT, AIA, AWO = "REJECT", "ALLOW_IF_AVAILABLE", "ALLOW_WITH_OVERDRAFT"

Gives: TypeAlias = Mapping[str, Any] | str | Refused
Books: TypeAlias = Mapping[str, Mapping[str, Any]]
_BEHIND_THE_EDGES: Final = ("wait", "sweep", "close", "open_capped", "defaults", "join", "seed", "plant", "shut")
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Step:
    """`hold` names the reservation that it makes or is about; `label` its answer, which a later one `repeats`."""

    what: str
    given: Fields = field(default_factory=dict)
    by: str = ACME
    hold: str | None = None
    gives: Gives = field(default_factory=dict)
    books: Books = field(default_factory=dict)
    label: str | None = None
    repeats: str | None = None


@dataclass(frozen=True)
class Story:
    """`budgets`: scope to (allocated, overdraft limit) of tokens, or what is allocated."""

    name: str
    budgets: Mapping[str, tuple[int, int] | int]
    steps: tuple[Step, ...]


def retold(told: Any, names: Mapping[str, str]) -> Any:
    """The same story about others: every name that is in it, or in one of its texts, gives way to another."""
    if isinstance(told, str):
        for name, other in names.items():
            told = told.replace(name, other)
        return told
    if isinstance(told, Mapping):
        return {retold(name, names): retold(value, names) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return type(told)(retold(each, names) for each in told)
    if isinstance(told, Story | Step | Refused):
        return replace(told, **{each.name: retold(getattr(told, each.name), names) for each in fields(told)})
    return told


def story(name: str, budgets: Mapping[str, tuple[int, int] | int], *steps: Step) -> Story:
    return Story(name, budgets, steps)


# -- steps -------------------------------------------------------------------------------------------------------------


def _step(what: str, given: dict[str, Any], more: dict[str, Any]) -> Step:
    """What a step itself has a place for is the step's, everything else is asked."""
    frame = {name: more.pop(name) for name in ("by", "gives", "books", "label", "repeats") if name in more}
    hold = more.pop("hold", None)
    if "key" in more:
        more["idempotency_key"] = more.pop("key")
    return Step(what=what, given=given | more, hold=hold, **frame)


def reserve(amount: Any, subject: Fields = WHOLE, *, hold: str = "hold", **more: Any) -> Step:
    return _step("reserve", {"subject": subject, "action": CALL, "amount": amount}, {**more, "hold": hold})


def decide(amount: Any, subject: Fields = WHOLE, **more: Any) -> Step:
    return _step("decide", {"subject": subject, "action": CALL, "amount": amount}, more)


def debit(amount: Any, subject: Fields = WHOLE, **more: Any) -> Step:
    return _step("debit", {"subject": subject, "action": CALL, "amount": amount}, more)


def commit(amount: Any, *, hold: str = "hold", **more: Any) -> Step:
    return _step("commit", {"amount": amount}, {**more, "hold": hold})


def release(*, hold: str = "hold", **more: Any) -> Step:
    return _step("release", {}, {**more, "hold": hold})


def extend(by_ms: Any, *, hold: str = "hold", **more: Any) -> Step:
    return _step("extend", {"extend_by_ms": by_ms}, {**more, "hold": hold})


def find(*, hold: str = "hold", **more: Any) -> Step:
    return _step("find", {}, {**more, "hold": hold})


def fund(operation: str, amount: Any, scope: str = P, **more: Any) -> Step:
    return _step("fund", {"operation": operation, "amount": amount, "scope": scope, "unit": TOKENS}, more)


def create(scope: str, amount: Any, **more: Any) -> Step:
    return _step("create", {"scope": scope, "amount": amount, "unit": TOKENS}, more)


def update(scope: str = P, **more: Any) -> Step:
    return _step("update", {"scope": scope, "unit": TOKENS}, {"by": ADMIN, **more})


def freeze(scope: str = P, **more: Any) -> Step:
    return _step("freeze", {"scope": scope, "unit": TOKENS}, {"by": ADMIN, **more})


def unfreeze(scope: str = P, **more: Any) -> Step:
    return _step("unfreeze", {"scope": scope, "unit": TOKENS}, {"by": ADMIN, **more})


def become(status: str, tenant_id: str = ACME, **more: Any) -> Step:
    """The tenant, by an operator."""
    return _step("tenant", {"tenant_id": tenant_id, "status": status}, {"by": ADMIN, **more})


def wait(ms: int) -> Step:
    return Step(what="wait", given={"ms": ms})


def sweep(**more: Any) -> Step:
    """What is overdue is given back."""
    return _step("sweep", {}, more)


def close(scope: str = P) -> Step:
    """No edge closes a single budget."""
    return Step(what="close", given={"scope": scope})


def open_capped(scope: str, allocated: int, **caps: Any) -> Step:
    """The published wire opens no budget with caps."""
    return Step(what="open_capped", given={"scope": scope, "allocated": allocated, "caps": caps})


def defaults(**settings: Any) -> Step:
    """Of the tenant; only the published wire sets them, and not all."""
    return Step(what="defaults", given=settings)


def join(tenant_id: str) -> Step:
    """Another tenant, with a key of its own name."""
    return Step(what="join", given={"tenant_id": tenant_id})


def seed(scope: str, **columns: int) -> Step:
    """Balances that no sequence of requests comes to (section 2.8)."""
    return Step(what="seed", given={"scope": scope, **columns})


def plant(scope: str, *, like: str, tenant_id: str = ACME) -> Step:
    """A budget at a path that no budget can be opened at any more: of a subject without a tenant (2.1)."""
    return Step(what="plant", given={"scope": scope, "like": like, "tenant_id": tenant_id})


def shut() -> Step:
    """The tenant is closed and its keys are still alive: the moment in which its guard alone stands (5.3)."""
    return Step(what="shut")


# -- playing -----------------------------------------------------------------------------------------------------------


class Player:
    """Tells one story over one edge, about one tenant."""

    def __init__(self, world: World, edge: BudgetEdge, tenant_id: str = ACME) -> None:
        self.world = world
        self.edge = edge
        self.tenant_id = tenant_id
        self.holds: dict[str, str] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self._keys = (f"step-{number}" for number in itertools.count(1))

    async def play(self, told: Story) -> None:
        for scope, given in told.budgets.items():
            allocated, overdraft = given if isinstance(given, tuple) else (given, 0)
            await self.world.budget(scope, allocated, overdraft=overdraft)
        for number, step in enumerate(told.steps, 1):
            place = f"step {number}: {step.what} {dict(step.given)}"
            await self._take(step, place)
            for scope in told.budgets:
                await self._check_books(scope, step.books.get(scope, _NOTHING), place)

    async def _take(self, step: Step, place: str) -> None:
        if step.what in _BEHIND_THE_EDGES:
            await getattr(self, f"_{step.what}")(step.given)
            return
        answer = await self.ask(step)
        if isinstance(step.gives, str | Refused):
            assert isinstance(answer, Refused), f"{place} gave {answer}"
            expected = Refused(step.gives) if isinstance(step.gives, str) else step.gives
            assert answer.code == expected.code, f"{place}: {answer}"
            assert_within(expected.details, answer.details, place)
            return
        assert not isinstance(answer, Refused), f"{place} was refused: {answer}"
        expected = {
            name: self.holds.get(value, value) if name == "reservation_id" else value
            for name, value in step.gives.items()
        }
        assert_within(expected, answer, place)
        if step.hold is not None and step.what == "reserve" and answer["reservation_id"] is not None:
            self.holds.setdefault(step.hold, answer["reservation_id"])
        if step.label is not None:
            self.answers[step.label] = answer
        if step.repeats is not None:
            assert unchanging(answer) == unchanging(self.answers[step.repeats]), place

    async def ask(self, step: Step) -> Answer:
        given = dict(step.given)
        if step.what not in ("find", "budget"):
            given.setdefault("idempotency_key", next(self._keys))
        if step.hold is not None and step.what in ("commit", "release", "extend", "find"):
            given["reservation_id"] = self.holds.get(step.hold, step.hold)
        if step.by == ADMIN and step.what == "release":
            given["as_admin"] = True
        return await self.edge.ask(step.what, given, by=step.by)

    async def _check_books(self, scope: str, expected: Mapping[str, Any], place: str) -> None:
        seen = await self.edge.ask("budget", {"scope": scope}, by=ADMIN)
        assert not isinstance(seen, Refused), f"{place}: {seen}"
        assert seen["remaining"] == seen["allocated"] - seen["spent"] - seen["reserved"] - seen["debt"], place
        assert_within(expected, seen, f"{place}, then {scope}")

    async def _wait(self, given: Fields) -> None:
        self.world.clock.advance(given["ms"])

    async def _sweep(self, _given: Fields) -> None:
        await self.world.node.schedule.run_job(EXPIRY)

    async def _close(self, given: Fields) -> None:
        desk = self.world.node.budgets
        outcome: Any = await desk.close_budget(
            OPERATOR, tenant_id=self.tenant_id, scope=given["scope"], unit=Unit.TOKENS
        )
        assert outcome.answer.status == "CLOSED"

    async def _open_capped(self, given: Fields) -> None:
        outcome: Any = await self.world.node.budgets.create_budget(
            OPERATOR,
            tenant_id=self.tenant_id,
            scope=given["scope"],
            unit=Unit.TOKENS,
            allocated=Amount(Unit.TOKENS, given["allocated"]),
            caps=Caps(**given["caps"]),
        )
        assert outcome.answer.caps is not None

    async def _defaults(self, given: Fields) -> None:
        outcome: Any = await self.world.node.budgets.update_tenant(OPERATOR, tenant_id=self.tenant_id, **given)
        assert outcome.answer.changed_fields == tuple(given)

    async def _join(self, given: Fields) -> None:
        await self.world.add_tenant(given["tenant_id"])

    async def _seed(self, given: Fields) -> None:
        columns = {name: value for name, value in given.items() if name != "scope"}
        changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
        await self._rewrite(f"update budget set {changes} where scope_path = $1", given["scope"])

    async def _plant(self, given: Fields) -> None:
        await self._rewrite(
            """
            insert into budget (tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit,
                capped, status, rollover_policy, created_at)
            select $1, $2, unit, budget_id || '_planted', allocated, 0, 0, 0, 0, false, status, rollover_policy, created_at
            from budget where tenant_id = $1 and scope_path = $3
            """,
            given["tenant_id"],
            given["scope"],
            given["like"],
        )

    async def _shut(self, _given: Fields) -> None:
        await self._rewrite(
            "update budget_tenant set status = 'CLOSED', closed_at = clock_at where tenant_id = $1", self.tenant_id
        )

    async def _rewrite(self, statement: str, *arguments: Any) -> None:
        """In the tables, past the desks; nobody's memory is good afterwards."""
        async with self.world.node.database.acquire() as connection:
            await connection.execute(statement, *arguments)
            await connection.execute("update budget_tenant set version = version + 1")


def unchanging(answer: Fields) -> dict[str, Any]:
    """What a retry is told again to the letter: all but the remaining lifetime (4.2)."""
    return {name: value for name, value in answer.items() if name != "remaining_ttl_ms"}


def assert_within(expected: Any, seen: Any, place: str) -> None:
    """Every field that is expected is there, and so are those inside it."""
    if isinstance(expected, Mapping):
        assert isinstance(seen, Mapping), f"{place}: {seen}"
        for name, value in expected.items():
            assert name in seen, f"{place}: no {name} in {seen}"
            assert_within(value, seen[name], f"{place}, {name}")
    else:
        assert seen == expected, f"{place}: {seen!r} is not {expected!r}"
