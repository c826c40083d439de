"""The llm replay's calls over HTTP, through the published wire under `/v1`, as a client of it would make them.

Every answer is looked at by itself: balances that contradict themselves (I1), and whether time was kept. Some calls are
made once more under their key, and must be answered as before (section 4.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from domain.amounts import Unit
from domain.budget.values import Balance, OveragePolicy
from server.replay.llm_calls import Charged, Denied, Held, new_latencies
from server.replay.llm_ledger import ListedHold, refuse_impossible
from server.replay.llm_trace import LlmRequest
from server.replay.llm_world import Agent, Job
from server.replay.wire import Told, Wire
from server.replay.world import ReplayError

Shape = TypeVar("Shape")

ACTION_KIND: Final = "llm.completion"
PAGE: Final = 200
REPEAT_EVERY: Final = 20
"""Of so many calls one is repeated."""
NS_MS: Final = 1_000_000


class TokensTold(msgspec.Struct, frozen=True):
    unit: str
    amount: int


class BalanceTold(msgspec.Struct, frozen=True):
    scope_path: str
    remaining: TokensTold
    reserved: TokensTold
    spent: TokensTold
    allocated: TokensTold
    debt: TokensTold = TokensTold(Unit.TOKENS, 0)
    overdraft_limit: TokensTold = TokensTold(Unit.TOKENS, 0)
    is_over_limit: bool = False


class CapsTold(msgspec.Struct, frozen=True):
    max_tokens: int | None = None


class ReserveTold(msgspec.Struct, frozen=True):
    decision: str
    reservation_id: str
    expires_at_ms: int
    remaining_ttl_ms: int
    reserved: TokensTold
    balances: tuple[BalanceTold, ...]
    caps: CapsTold | None = None


class ExtendTold(msgspec.Struct, frozen=True):
    expires_at_ms: int
    remaining_ttl_ms: int


class ChargeTold(msgspec.Struct, frozen=True):
    """Of a commit or a debit; a debit tells what it charged only when that is less than asked for."""

    balances: tuple[BalanceTold, ...]
    charged: TokensTold | None = None
    released: TokensTold | None = None


class BalancesTold(msgspec.Struct, frozen=True):
    balances: tuple[BalanceTold, ...]


class HoldTold(msgspec.Struct, frozen=True):
    reservation_id: str
    idempotency_key: str
    status: str
    reserved: TokensTold
    committed: TokensTold | None = None


class HoldsTold(msgspec.Struct, frozen=True):
    reservations: tuple[HoldTold, ...]
    next_cursor: str | None = None


class WireCalls:
    """A tenant's, with its key. See `LlmCalls`."""

    def __init__(self, wire: Wire, tenant_id: str) -> None:
        self.latencies = new_latencies()
        self.wrong: list[str] = []
        """What a single answer showed to be wrong, with the rule in front."""
        self.repeated = 0
        self._wire, self._tenant_id = wire, tenant_id
        self._numbers = itertools.count(1)

    # -- furnishing: what a lost answer left there already is there -------------------------------------------------

    async def make_budget(self, scope: str, *, allocated: int, overdraft_limit: int) -> None:
        amounts = {"allocated": _tokens(allocated), "overdraft_limit": _tokens(overdraft_limit)}
        body = {"scope": scope, "unit": Unit.TOKENS.value, **amounts}
        await self._wire.post("/v1/admin/budgets", body, expected={201, 409})

    async def make_policy(self, name: str, *, pattern: str, max_tokens: int) -> None:
        body = {"name": name, "scope_pattern": pattern, "caps": {"max_tokens": max_tokens}}
        await self._wire.post("/v1/admin/policies", body, expected={201, 409})

    async def credit(self, scope: str, amount: int, *, key: str) -> None:
        body = {"operation": "CREDIT", "amount": _tokens(amount), "idempotency_key": key}
        await self._wire.post(f"/v1/admin/budgets/fund?scope={scope}&unit={Unit.TOKENS}", body, expected={200})

    # -- holding and settling ------------------------------------------------------------------------------------

    async def reserve(self, job: Job, *, ttl_ms: int, grace_ms: int, key: str) -> Held | Denied:
        body = {
            "idempotency_key": key,
            "subject": job.agent.subject.content(),
            "action": {"kind": ACTION_KIND, "name": job.request.app},
            "estimate": _tokens(job.estimate),
            "ttl_ms": ttl_ms,
            "grace_period_ms": grace_ms,
            "overage_policy": job.agent.kind.overage_policy.value,
        }
        told = await self._call("reserve", "/v1/reservations", body)
        if told.status != 200:
            return Denied(told.error())
        answer = _read(told.body, ReserveTold)
        self._balances(answer.balances)
        return Held(
            reservation_id=answer.reservation_id,
            amount=answer.reserved.amount,
            expires_at=answer.expires_at_ms,
            remaining_ttl_ms=answer.remaining_ttl_ms,
            has_caps=answer.decision == "ALLOW_WITH_CAPS",
            max_tokens=None if answer.caps is None else answer.caps.max_tokens,
            grace_ms=grace_ms,
            job=job,
            asked_ns=told.asked_ns,
            told_ns=told.told_ns,
        )

    async def extend(self, held: Held, *, by_ms: int, key: str) -> Held | Denied:
        told = await self._call("extend", _path(held, "extend"), {"idempotency_key": key, "extend_by_ms": by_ms})
        if told.status != 200:
            return Denied(told.error())
        answer = _read(told.body, ExtendTold)
        return replace(
            held,
            expires_at=answer.expires_at_ms,
            remaining_ttl_ms=answer.remaining_ttl_ms,
            asked_ns=told.asked_ns,
            told_ns=told.told_ns,
        )

    async def commit(self, held: Held, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied:
        body = {"idempotency_key": key, "actual": _tokens(actual), "metrics": _metrics(request)}
        told = await self._call("commit", _path(held, "commit"), body)
        self.wrong += refuse_untimely(held, told)
        if told.status != 200:
            return Denied(told.error())
        answer = _read(told.body, ChargeTold)
        charged = answer.charged.amount if answer.charged is not None else actual
        released = answer.released.amount if answer.released is not None else 0
        if released != max(0, held.amount - charged):
            what = f"{charged} charged and {released} released of {held.amount} held"
            self.wrong.append(f"answers: {held.reservation_id}: {what}")
        return Charged(amount=charged, balances=self._balances(answer.balances))

    async def release(self, held: Held, *, key: str) -> Denied | None:
        told = await self._call("release", _path(held, "release"), {"idempotency_key": key})
        return None if told.status == 200 else Denied(told.error())

    async def debit(self, agent: Agent, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied:
        body = {
            "idempotency_key": key,
            "subject": agent.subject.content(),
            "action": {"kind": ACTION_KIND, "name": request.app},
            "actual": _tokens(actual),
            "overage_policy": OveragePolicy.ALLOW_IF_AVAILABLE.value,
            "metrics": _metrics(request),
        }
        told = await self._call("debit", "/v1/events", body)
        if told.status != 201:
            return Denied(told.error())
        answer = _read(told.body, ChargeTold)
        charged = actual if answer.charged is None else answer.charged.amount
        return Charged(amount=charged, balances=self._balances(answer.balances))

    async def _call(self, what: str, path: str, body: Mapping[str, Any]) -> Told:
        with self.latencies[what].timed():
            told = await self._wire.post(path, body)
        if told.status < 300 and next(self._numbers) % REPEAT_EVERY == 0:
            again = await self._wire.post(path, body)
            self.repeated += 1
            if (told.status, _without_time(told.body)) != (again.status, _without_time(again.body)):
                self.wrong.append(f"answers: a {what} under the key {body['idempotency_key']} is told in two ways")
        return told

    # -- looking -------------------------------------------------------------------------------------------------

    async def balances(self) -> tuple[Balance, ...]:
        found = await self._wire.get("/v1/balances", tenant=self._tenant_id, limit=PAGE)
        return tuple(self._balances(_read(found, BalancesTold).balances))

    async def holds(self) -> list[ListedHold]:
        """Everything that was ever held."""
        holds: list[ListedHold] = []
        cursor: dict[str, str] = {}
        while True:
            page = _read(await self._wire.get("/v1/reservations", limit=PAGE, **cursor), HoldsTold)
            holds.extend(map(_listed, page.reservations))
            if page.next_cursor is None:
                return holds
            cursor = {"cursor": page.next_cursor}

    def _balances(self, told: Iterable[BalanceTold]) -> Sequence[Balance]:
        """Each is looked at: what is said to remain must follow from the rest (I1), and nothing may be impossible (I3)."""
        balances = []
        for each in told:
            balance = _balance(each)
            if balance.remaining != each.remaining.amount:
                what = f"{each.scope_path}: {each.remaining.amount} is told to remain, not {balance.remaining}"
                self.wrong.append(f"I1 what remains follows from the rest: {what}")
            self.wrong += refuse_impossible(balance)
            balances.append(balance)
        return balances


def refuse_untimely(held: Held, told: Told) -> list[str]:
    """Section 3, as far as a client can tell: an answer is never decided before it was asked for nor after it came."""
    least_ms = (told.first_asked_ns - held.told_ns) // NS_MS
    most_ms = -(-(told.told_ns - held.asked_ns) // NS_MS)
    allowed_ms = held.remaining_ttl_ms + held.grace_ms
    if told.status == 200 and least_ms > allowed_ms + 1:
        return [f"answers: {held.reservation_id} was settled {least_ms} ms after it had {allowed_ms} ms left"]
    if told.status == 410 and most_ms < allowed_ms:
        return [f"answers: {held.reservation_id} had {allowed_ms} ms left and was over within {most_ms} ms"]
    return []


def _balance(told: BalanceTold) -> Balance:
    return Balance(
        scope_path=told.scope_path,
        unit=Unit.TOKENS,
        allocated=told.allocated.amount,
        reserved=told.reserved.amount,
        spent=told.spent.amount,
        debt=told.debt.amount,
        overdraft_limit=told.overdraft_limit.amount,
        is_over_limit=told.is_over_limit,
    )


def _listed(told: HoldTold) -> ListedHold:
    return ListedHold(
        reservation_id=told.reservation_id,
        key=told.idempotency_key,
        state=told.status,
        amount=told.reserved.amount,
        charged=None if told.committed is None else told.committed.amount,
    )


def _read(body: bytes, shape: type[Shape]) -> Shape:
    """Raises `ReplayError`."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise ReplayError(f"an answer is not what was published: {error}") from None


def _without_time(body: bytes) -> dict[str, Any]:
    """A repetition tells the time that is left anew; everything else is as it was."""
    document: dict[str, Any] = msgspec.json.decode(body)
    document.pop("remaining_ttl_ms", None)
    return document


def _path(held: Held, action: str) -> str:
    return f"/v1/reservations/{held.reservation_id}/{action}"


def _metrics(request: LlmRequest) -> dict[str, int]:
    return {"tokens_input": request.context_tokens, "tokens_output": request.generated_tokens}


def _tokens(amount: int) -> dict[str, Any]:
    return {"unit": Unit.TOKENS.value, "amount": amount}
