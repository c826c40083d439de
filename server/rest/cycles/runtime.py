"""The operations that hold, settle and spend (1.1 to 1.6): one call of the desk each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from domain.budget.repeats import BudgetOutcome
from domain.budget.replay import Repeated
from domain.outcomes import Refusal
from server.rest.cycles.answers import (
    Document,
    rate_headers,
    show_commit,
    show_debit,
    show_evaluate,
    show_extend,
    show_release,
    show_reserve,
)
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.requests import CommitBody, DecideBody, EventBody, ExtendBody, ReleaseBody, ReserveBody


async def decide(exchange: Exchange) -> Answer:
    body = await exchange.body(DecideBody)
    outcome = await exchange.runtime.budgets.evaluate(
        exchange.caller,
        idempotency_key=body.idempotency_key,
        subject=body.subject.value(),
        action=body.action.value(),
        estimate=body.estimate.value(),
        metadata=body.metadata,
    )
    return told(outcome, show_evaluate)


async def reserve(exchange: Exchange) -> Answer:
    body = await exchange.body(ReserveBody)
    outcome = await exchange.runtime.budgets.reserve(
        exchange.caller,
        idempotency_key=body.idempotency_key,
        subject=body.subject.value(),
        action=body.action.value(),
        estimate=body.estimate.value(),
        ttl_ms=body.ttl_ms,
        grace_ms=body.grace_period_ms,
        overage_policy=body.overage_policy,
        dry_run=bool(body.dry_run),
        metadata=body.metadata,
    )
    return told(outcome, show_reserve)


async def commit(exchange: Exchange) -> Answer:
    body = await exchange.body(CommitBody)
    outcome = await exchange.runtime.budgets.commit(
        exchange.caller,
        reservation_id=exchange.path("reservation_id"),
        idempotency_key=body.idempotency_key,
        actual=body.actual.value(),
        metrics=body.metrics.value() if body.metrics is not None else None,
        metadata=body.metadata,
    )
    return told(outcome, show_commit)


async def release(exchange: Exchange) -> Answer:
    """An operator may release anybody's, and leaves an audit entry (1.3)."""
    body = await exchange.body(ReleaseBody)
    outcome = await exchange.runtime.budgets.release(
        exchange.caller,
        reservation_id=exchange.path("reservation_id"),
        idempotency_key=body.idempotency_key,
        reason=body.reason,
        as_admin=exchange.is_admin,
    )
    return told(outcome, show_release)


async def extend(exchange: Exchange) -> Answer:
    body = await exchange.body(ExtendBody)
    outcome = await exchange.runtime.budgets.extend(
        exchange.caller,
        reservation_id=exchange.path("reservation_id"),
        idempotency_key=body.idempotency_key,
        extend_by_ms=body.extend_by_ms,
        metadata=body.metadata,
    )
    return told(outcome, show_extend)


async def create_event(exchange: Exchange) -> Answer:
    """A direct debit. A replay is a 201 like the first (4.2)."""
    body = await exchange.body(EventBody)
    outcome = await exchange.runtime.budgets.debit(
        exchange.caller,
        idempotency_key=body.idempotency_key,
        subject=body.subject.value(),
        action=body.action.value(),
        actual=body.actual.value(),
        overage_policy=body.overage_policy,
        metrics=body.metrics.value() if body.metrics is not None else None,
        client_time_ms=body.client_time_ms,
        metadata=body.metadata,
    )
    return told(outcome, show_debit, status=201)


def told(outcome: BudgetOutcome[Any], show: Callable[[Any], Document], *, status: int = 200) -> Answer:
    """A first answer and its repetition look alike: the client cannot know which of the two it gets."""
    if isinstance(outcome, Refusal):
        return outcome
    headers = rate_headers(getattr(outcome.answer, "allowance", None))
    return Reply(show(outcome.answer), status, is_repeat=isinstance(outcome, Repeated), headers=headers)
