"""The llm replay's calls through the desks of this process."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final, TypeVar

from domain.amounts import Amount, Unit
from domain.authority import Principal
from domain.budget.answers import CommitAnswer, DebitAnswer
from domain.budget.queries import BudgetQuery
from domain.budget.records import FundingOperation
from domain.budget.repeats import BudgetOutcome
from domain.budget.values import Action, Balance, Caps, Decision, Metrics, OveragePolicy
from domain.outcomes import Refusal
from server.replay.llm_calls import Charged, Denied, Held, new_latencies
from server.replay.llm_trace import LlmRequest
from server.replay.llm_world import Agent, Job
from server.replay.world import ReplayError, accepted
from workers.request import Caller
from workers.runtime import Runtime

Answer = TypeVar("Answer")

ROOT: Final = "platform"
TENANT: Final = "llm"
ACTION_KIND: Final = "llm.completion"
BUDGETS_SHOWN: Final = 200


class DeskCalls:
    """A tenant's, with its key. See `LlmCalls`."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self.latencies = new_latencies()
        self._runtime, self._caller = runtime, caller

    @classmethod
    async def open(cls, runtime: Runtime) -> DeskCalls:
        """Open the node of a fresh database; make the tenant and its key."""
        root = Caller(principal=await _holder(runtime, await runtime.open(root_tenant=ROOT)))
        agreed(await runtime.budgets.create_tenant(root, tenant_id=TENANT, name="requests to language models"))
        issued = accepted(await runtime.keys.create_api_key(root, tenant_id=TENANT, name="replay"))
        return cls(runtime, Caller(principal=await _holder(runtime, issued.secret)))

    # -- furnishing ----------------------------------------------------------------------------------------------

    async def make_budget(self, scope: str, *, allocated: int, overdraft_limit: int) -> None:
        agreed(
            await self._runtime.budgets.create_budget(
                self._caller,
                scope=scope,
                unit=Unit.TOKENS,
                allocated=_tokens(allocated),
                overdraft_limit=_tokens(overdraft_limit),
            )
        )

    async def make_policy(self, name: str, *, pattern: str, max_tokens: int) -> None:
        caps = Caps(max_tokens=max_tokens)
        agreed(await self._runtime.budgets.create_policy(self._caller, name=name, scope_pattern=pattern, caps=caps))

    async def credit(self, scope: str, amount: int, *, key: str) -> None:
        agreed(
            await self._runtime.budgets.fund(
                self._caller,
                scope=scope,
                unit=Unit.TOKENS,
                kind=FundingOperation.CREDIT,
                amount=_tokens(amount),
                idempotency_key=key,
            )
        )

    async def balances(self) -> tuple[Balance, ...]:
        seen = await self._runtime.budget_reads.budgets(self._caller, query=BudgetQuery(), limit=BUDGETS_SHOWN)
        if isinstance(seen, Refusal) or seen.has_more:
            raise ReplayError("the budgets cannot be read in one page")
        return tuple(each.budget.balance() for each in seen.items)

    # -- holding and settling ------------------------------------------------------------------------------------

    async def reserve(self, job: Job, *, ttl_ms: int, grace_ms: int, key: str) -> Held | Denied:
        outcome = await self._timed(
            "reserve",
            self._runtime.budgets.reserve(
                self._caller,
                idempotency_key=key,
                subject=job.agent.subject,
                action=_action(job.request),
                estimate=_tokens(job.estimate),
                ttl_ms=ttl_ms,
                grace_ms=grace_ms,
                overage_policy=job.agent.kind.overage_policy,
            ),
        )
        if isinstance(outcome, Refusal):
            return Denied(outcome.code)
        answer = outcome.answer
        assert answer.reservation_id is not None, "a live hold"
        assert answer.expires_at is not None, "a live hold"
        return Held(
            reservation_id=answer.reservation_id,
            amount=answer.reserved or 0,
            expires_at=answer.expires_at,
            remaining_ttl_ms=answer.expires_at - answer.decided_at,
            has_caps=answer.decision is Decision.ALLOW_WITH_CAPS,
            max_tokens=None if answer.caps is None else answer.caps.max_tokens,
            grace_ms=grace_ms,
            job=job,
        )

    async def extend(self, held: Held, *, by_ms: int, key: str) -> Held | Denied:
        outcome = await self._timed(
            "extend",
            self._runtime.budgets.extend(
                self._caller, reservation_id=held.reservation_id, idempotency_key=key, extend_by_ms=by_ms
            ),
        )
        if isinstance(outcome, Refusal):
            return Denied(outcome.code)
        return replace(held, expires_at=outcome.answer.expires_at, remaining_ttl_ms=outcome.answer.remaining_ttl_ms)

    async def commit(self, held: Held, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied:
        outcome = await self._timed(
            "commit",
            self._runtime.budgets.commit(
                self._caller,
                reservation_id=held.reservation_id,
                idempotency_key=key,
                actual=_tokens(actual),
                metrics=_metrics(request),
            ),
        )
        return _charged(outcome)

    async def release(self, held: Held, *, key: str) -> Denied | None:
        outcome = await self._timed(
            "release",
            self._runtime.budgets.release(self._caller, reservation_id=held.reservation_id, idempotency_key=key),
        )
        return Denied(outcome.code) if isinstance(outcome, Refusal) else None

    async def debit(self, agent: Agent, actual: int, *, request: LlmRequest, key: str) -> Charged | Denied:
        outcome = await self._timed(
            "debit",
            self._runtime.budgets.debit(
                self._caller,
                idempotency_key=key,
                subject=agent.subject,
                action=_action(request),
                actual=_tokens(actual),
                overage_policy=OveragePolicy.ALLOW_IF_AVAILABLE,
                metrics=_metrics(request),
            ),
        )
        return _charged(outcome)

    async def _timed(self, what: str, call: Awaitable[Answer]) -> Answer:
        with self.latencies[what].timed():
            return await call


def agreed(outcome: BudgetOutcome[Answer]) -> Answer:
    """The answer. Raises `ReplayError` for a refusal: going on would prove nothing."""
    if isinstance(outcome, Refusal):
        raise ReplayError(f"not expected: {outcome.code}: {outcome.message}")
    return outcome.answer


def _charged(outcome: BudgetOutcome[CommitAnswer] | BudgetOutcome[DebitAnswer]) -> Charged | Denied:
    if isinstance(outcome, Refusal):
        return Denied(outcome.code)
    return Charged(amount=outcome.answer.charged, balances=outcome.answer.balances)


async def _holder(runtime: Runtime, secret: str | None) -> Principal:
    """Whoever holds this secret, as a request of theirs would be recognised."""
    principal = await runtime.authenticator.authenticate(secret or "")
    if principal is None:
        raise ReplayError("a key that was just made is not valid: is the database a fresh one?")
    return principal


def _action(request: LlmRequest) -> Action:
    return Action(kind=ACTION_KIND, name=request.app)


def _metrics(request: LlmRequest) -> Metrics:
    return Metrics(tokens_input=request.context_tokens, tokens_output=request.generated_tokens)


def _tokens(amount: int) -> Amount:
    return Amount(Unit.TOKENS, amount)
