"""Decisions that make and prolong budget reservations: reserve, its dry run, evaluate, extend (sections 2.4 and 3).

Guards come first, one a line, in the documented order; after the last one the decision must succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.budget.admission import Verdict, evaluate
from domain.budget.answers import EvaluateAnswer, ExtendAnswer, ReserveAnswer
from domain.budget.balances import move
from domain.budget.commands import Evaluate, Extend, ReservationCommand, Reserve
from domain.budget.events import BudgetEvent, EventType, ReservationDenied
from domain.budget.governing import allowance_of, count_call, extensions_of, grace_of, overage_of, ttl_of
from domain.budget.records import BudgetReservation, RateKind, ReservationStatus
from domain.budget.refusals import (
    Denial,
    MaxExtensionsExceeded,
    RateLimited,
    ReservationExpired,
    ReservationFinalized,
)
from domain.budget.repeats import BudgetOutcome, accept, accept_limited, repeated
from domain.budget.scopes import derive_scopes
from domain.budget.shapes import check_evaluate, check_extend, check_reserve, overflows
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_inactive, refuse_request, refuse_scope
from domain.budget.values import Decision
from domain.outcomes import AccessDenied, NotFound, Refusal
from domain.terms import INSTANT_MAX


def decide_reserve(state: BudgetState, command: Reserve, now: int) -> BudgetOutcome[ReserveAnswer]:
    """Hold the estimate on all budgets of the subject or on none (I7); a dry run only tells what would happen (I8).

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, then what `admission.evaluate` refuses.
    A dry run answers DENY where a live request is refused by a `Denial`.
    """
    if (invalid := check_reserve(command)) is not None:
        return invalid
    scopes = derive_scopes(command.subject)
    if isinstance(scopes, Refusal):
        return scopes
    if (refusal := refuse_request(state, command, command.subject, scopes)) is not None:
        return refusal
    if (repeat := repeated(state, command, ReserveAnswer, now)) is not None:
        return repeat
    verdict = evaluate(state, scopes, command.estimate, now)
    if isinstance(verdict, Denial):
        _tell_denied(state, command, scopes, verdict, now)
        return accept(state, command, _denied(command, scopes, verdict, now), now) if command.dry_run else verdict
    if isinstance(verdict, Refusal):
        return verdict
    answer = _allowed(command, scopes, verdict, now) if command.dry_run else _hold(state, command, scopes, verdict, now)
    allowance = allowance_of(state, verdict.policy, RateKind.RESERVATIONS, now)
    return accept_limited(state, command, answer, allowance=allowance, now=now)


def decide_evaluate(state: BudgetState, command: Evaluate, now: int) -> BudgetOutcome[EvaluateAnswer]:
    """Tell whether a reserve would hold now. It holds nothing, and a repeated ALLOW is stale by contract (section 1.5).

    Refuses in this order: INVALID_INPUT, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, UNIT_MISMATCH; every `Denial` is a DENY.
    """
    if (invalid := check_evaluate(command)) is not None:
        return invalid
    scopes = derive_scopes(command.subject)
    if isinstance(scopes, Refusal):
        return scopes
    if (refusal := refuse_request(state, command, command.subject, scopes)) is not None:
        return refusal
    if (repeat := repeated(state, command, EvaluateAnswer, now)) is not None:
        return repeat
    verdict, allowance = evaluate(state, scopes, command.estimate, now), None
    if isinstance(verdict, Denial):
        _tell_denied(state, command, scopes, verdict, now)
    elif isinstance(verdict, Refusal):
        return verdict
    else:
        allowance = allowance_of(state, verdict.policy, RateKind.RESERVATIONS, now)
    return accept_limited(state, command, _evaluated(scopes, verdict, now), allowance=allowance, now=now)


def decide_extend(state: BudgetState, command: Extend, now: int) -> BudgetOutcome[ExtendAnswer]:
    """Move the expiry of an active hold, counted from where it stands; nothing else about it changes (section 1.4).

    Refuses in this order: INVALID_INPUT, NOT_FOUND, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED,
    TENANT_SUSPENDED, RESERVATION_FINALIZED, RESERVATION_EXPIRED (grace does not count), MAX_EXTENSIONS_EXCEEDED.
    """
    if (invalid := check_extend(command)) is not None:
        return invalid
    reservation = find_reservation(state, command)
    if isinstance(reservation, Refusal):
        return reservation
    if (refusal := refuse_scope(command, reservation.scope_path)) is not None:
        return refusal
    if (repeat := repeated(state, command, ExtendAnswer, now)) is not None:
        return repeat
    if (refused := refuse_inactive(state)) is not None:
        return refused
    if (settled := refuse_settled(reservation, now)) is not None:
        return settled
    if now > reservation.expires_at:
        return expired(reservation)
    if reservation.extensions_used >= reservation.max_extensions:
        return _no_more_extensions(reservation)
    expires_at = _extended(state, reservation, command.extend_by_ms, now)
    if expires_at > INSTANT_MAX:
        return overflows("extend_by_ms")
    reservation.extensions_used += 1
    state.move_expiry(reservation, expires_at)
    return accept(state, command, _extension(state, reservation, now), now)


def find_reservation(state: BudgetState, command: ReservationCommand) -> BudgetReservation | NotFound | AccessDenied:
    """Unknown is NOT_FOUND; another tenant's is ACCESS_DENIED, as the protocol demands (check 10)."""
    reservation = state.reservations.get(command.reservation_id)
    if reservation is not None:
        return reservation
    if command.reservation_id in state.foreign_reservations:
        return AccessDenied(message="the reservation belongs to another tenant")
    return NotFound(field="reservation_id", message=f"no such reservation: {command.reservation_id}")


def refuse_settled(reservation: BudgetReservation, now: int) -> ReservationExpired | ReservationFinalized | None:
    """No longer active, by what is stored or by the time it is, told alike (decision 20)."""
    status = reservation.status_at(now)
    if status is ReservationStatus.ACTIVE:
        return None
    if status is ReservationStatus.EXPIRED:
        return expired(reservation)
    return ReservationFinalized(
        reservation_id=reservation.reservation_id,
        status=status.value,
        message=f"the reservation is {status.value.lower()} already",
    )


def expired(reservation: BudgetReservation) -> ReservationExpired:
    return ReservationExpired(
        reservation_id=reservation.reservation_id,
        expires_at=reservation.expires_at,
        grace_ms=reservation.grace_ms,
        message="the reservation has expired",
    )


def _hold(state: BudgetState, command: Reserve, scopes: tuple[str, ...], verdict: Verdict, now: int) -> ReserveAnswer:
    """Every guard has passed: what remains covers the estimate, so nothing can overflow."""
    amount = command.estimate.amount
    for budget in verdict.budgets:
        move(state, budget, now=now, origin=command.origin, reserved=amount)
    reservation = _new_reservation(state, command, scopes, verdict, now)
    state.add_reservation(reservation)
    count_call(state, verdict.policy, RateKind.RESERVATIONS, now)
    return ReserveAnswer(
        decision=_decision(verdict),
        scope_path=scopes[-1],
        affected_scopes=scopes,
        unit=command.estimate.unit,
        decided_at=now,
        reservation_id=reservation.reservation_id,
        reserved=amount,
        expires_at=reservation.expires_at,
        remaining_ttl_ms=reservation.ttl_ms,
        grace_ms=reservation.grace_ms,
        overage_policy=reservation.overage_policy,
        caps=verdict.caps,
        balances=tuple(budget.balance() for budget in verdict.budgets),
    )


def _new_reservation(
    state: BudgetState, command: Reserve, scopes: tuple[str, ...], verdict: Verdict, now: int
) -> BudgetReservation:
    """Everything that later steps go by is fixed here, whatever policies and defaults become (sections 2.2, 2.5, 3)."""
    budgets, policy, tenant = verdict.budgets, verdict.policy, state.tenant
    ttl_ms = ttl_of(command.ttl_ms, policy=policy, tenant=tenant)
    return BudgetReservation(
        reservation_id=command.reservation_id,
        idempotency_key=command.idempotency_key,
        subject=command.subject,
        action=command.action,
        unit=command.estimate.unit,
        estimate=command.estimate.amount,
        scope_path=scopes[-1],
        affected_scopes=scopes,
        budgeted_scopes=tuple(budget.scope_path for budget in budgets),
        overage_policy=overage_of(command.overage_policy, policy=policy, budgets=budgets, tenant=tenant),
        created_at=now,
        expires_at=now + ttl_ms,
        ttl_ms=ttl_ms,
        grace_ms=grace_of(command.grace_ms),
        max_extensions=extensions_of(policy=policy, tenant=tenant),
        metadata=command.metadata,
    )


def _allowed(command: Reserve, scopes: tuple[str, ...], verdict: Verdict, now: int) -> ReserveAnswer:
    """A dry run that would hold: no id, no expiry, and the balances as they are."""
    return ReserveAnswer(
        decision=_decision(verdict),
        scope_path=scopes[-1],
        affected_scopes=scopes,
        unit=command.estimate.unit,
        decided_at=now,
        reserved=command.estimate.amount,
        caps=verdict.caps,
        balances=tuple(budget.balance() for budget in verdict.budgets),
    )


def _denied(command: Reserve, scopes: tuple[str, ...], denial: Denial, now: int) -> ReserveAnswer:
    return ReserveAnswer(
        decision=Decision.DENY,
        scope_path=scopes[-1],
        affected_scopes=scopes,
        unit=command.estimate.unit,
        decided_at=now,
        reason_code=denial.code,
        retry_after_ms=_retry_after(denial),
    )


def _evaluated(scopes: tuple[str, ...], verdict: Verdict | Denial, now: int) -> EvaluateAnswer:
    if isinstance(verdict, Verdict):
        return EvaluateAnswer(decision=_decision(verdict), affected_scopes=scopes, decided_at=now, caps=verdict.caps)
    return EvaluateAnswer(
        decision=Decision.DENY,
        affected_scopes=scopes,
        decided_at=now,
        reason_code=verdict.code,
        retry_after_ms=_retry_after(verdict),
    )


def _decision(verdict: Verdict) -> Decision:
    return Decision.ALLOW if verdict.caps is None else Decision.ALLOW_WITH_CAPS


def _retry_after(denial: Denial) -> int | None:
    return denial.retry_after_ms if isinstance(denial, RateLimited) else None


def _tell_denied(
    state: BudgetState, command: Reserve | Evaluate, scopes: Sequence[str], denial: Denial, now: int
) -> None:
    """Told for live refusals and for previews (decision 24), but not for throttling, which is to cost nothing."""
    if isinstance(denial, RateLimited):
        return
    scope = getattr(denial, "scope", scopes[-1])
    facts = ReservationDenied(
        scope=scope,
        unit=command.estimate.unit,
        reason_code=denial.code,
        requested_amount=command.estimate.amount,
        remaining=getattr(denial, "remaining", None),
        action=command.action,
        subject=command.subject,
    )
    event = BudgetEvent(
        type=EventType.RESERVATION_DENIED, occurred_at=now, scope=scope, facts=facts, origin=command.origin
    )
    state.publish(event)


def _no_more_extensions(reservation: BudgetReservation) -> MaxExtensionsExceeded:
    return MaxExtensionsExceeded(
        reservation_id=reservation.reservation_id,
        max_extensions=reservation.max_extensions,
        message=f"the reservation has used its {reservation.max_extensions} extensions",
    )


def _extended(state: BudgetState, reservation: BudgetReservation, extend_by_ms: int, now: int) -> int:
    """Unbounded unless the tenant bounds the lead; the bound never shortens what is granted already (decision 18)."""
    wanted, lead_max_ms = reservation.expires_at + extend_by_ms, state.tenant.extension_lead_max_ms
    return wanted if lead_max_ms is None else max(reservation.expires_at, min(wanted, now + lead_max_ms))


def _extension(state: BudgetState, reservation: BudgetReservation, now: int) -> ExtendAnswer:
    return ExtendAnswer(
        reservation_id=reservation.reservation_id,
        expires_at=reservation.expires_at,
        remaining_ttl_ms=reservation.expires_at - now,
        extensions_used=reservation.extensions_used,
        decided_at=now,
        balances=tuple(budget.balance() for budget in state.held_budgets(reservation)),
    )
