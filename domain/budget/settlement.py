"""How a hold ends: committed, released, or expired; each exactly once (I4; sections 2.5, 2.6 and 3).

A frozen or closed budget still settles, and so does one in debt or over its limit: the action took place (decision 16).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from domain.amounts import saturating_sum
from domain.budget.answers import CommitAnswer, ReleaseAnswer
from domain.budget.balances import fits, move
from domain.budget.commands import Commit, Release
from domain.budget.events import (
    AuditEntry,
    BudgetEvent,
    CommitOverage,
    DebtIncurred,
    EventType,
    ReservationExpired,
)
from domain.budget.governing import allowance_of, count_call, refuse_rate, winning_policy
from domain.budget.overage import Overage, settle_overage
from domain.budget.records import Budget, BudgetReservation, RateKind, ReservationStatus
from domain.budget.refusals import BudgetExceeded, OverdraftLimitExceeded, UnitMismatch
from domain.budget.repeats import BudgetOutcome, accept, accept_limited, repeated
from domain.budget.reservations import find_reservation, refuse_settled
from domain.budget.shapes import check_commit, check_release, overflows
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_closed, refuse_scope
from domain.budget.values import ActorType, Origin, OveragePolicy
from domain.outcomes import Refusal

EXPIRIES_MAX: Final = 1_000
"""How many overdue holds one turn gives back, so that a long silence does not make one endless flush."""


def advance(state: BudgetState, now: int, *, limit: int = EXPIRIES_MAX) -> int:
    """Expire what is overdue at `now`, the longest overdue first; every turn does this before it decides.

    Returns how many it was. Lateness changes nothing but the delay of the event: no decision goes by a stored status.
    """
    assert now >= state.tenant.clock_at, "time went backwards"
    state.tenant.clock_at = now
    count = 0
    while count < limit and (reservation := state.next_due(now)) is not None:
        _expire(state, reservation, now)
        count += 1
    return count


def decide_commit(state: BudgetState, command: Commit, now: int) -> BudgetOutcome[CommitAnswer]:
    """Settle a hold with what was really used, on all its budgets or on none (I7).

    Refuses in this order: INVALID_INPUT, NOT_FOUND, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED,
    RESERVATION_FINALIZED or RESERVATION_EXPIRED, UNIT_MISMATCH, LIMIT_EXCEEDED, BUDGET_EXCEEDED (REJECT),
    OVERDRAFT_LIMIT_EXCEEDED, INVALID_INPUT (overflow). A refused hold stays as it is.
    """
    if (invalid := check_commit(command)) is not None:
        return invalid
    reservation = find_reservation(state, command)
    if isinstance(reservation, Refusal):
        return reservation
    if (refusal := refuse_scope(command, reservation.scope_path)) is not None:
        return refusal
    if (repeat := repeated(state, command, CommitAnswer, now)) is not None:
        return repeat
    if (closed := refuse_closed(state)) is not None:
        return closed
    if (settled := refuse_settled(reservation, now)) is not None:
        return settled
    if command.actual.unit is not reservation.unit:
        return _other_unit(reservation, command)
    policy = winning_policy(state, reservation.scope_path, now)
    if (refused := refuse_rate(state, policy, RateKind.COMMITS, now)) is not None:
        return refused
    budgets = state.held_budgets(reservation)
    overage = _overage(reservation, budgets, command.actual.amount)
    if isinstance(overage, Refusal):
        return overage
    if not _all_fit(reservation, budgets, command.actual.amount, overage):
        return overflows("actual.amount")
    count_call(state, policy, RateKind.COMMITS, now)
    answer = _commit(state, command, reservation, budgets=budgets, overage=overage, now=now)
    allowance = allowance_of(state, policy, RateKind.COMMITS, now)
    return accept_limited(state, command, answer, allowance=allowance, now=now)


def decide_release(state: BudgetState, command: Release, now: int) -> BudgetOutcome[ReleaseAnswer]:
    """Give a hold back whole. An operator who does so for a tenant leaves an audit entry (section 1.3).

    Refuses in this order: INVALID_INPUT, NOT_FOUND, ACCESS_DENIED, IDEMPOTENCY_MISMATCH, TENANT_CLOSED,
    RESERVATION_FINALIZED or RESERVATION_EXPIRED.
    """
    if (invalid := check_release(command)) is not None:
        return invalid
    reservation = find_reservation(state, command)
    if isinstance(reservation, Refusal):
        return reservation
    if (refusal := refuse_scope(command, reservation.scope_path)) is not None:
        return refusal
    if (repeat := repeated(state, command, ReleaseAnswer, now)) is not None:
        return repeat
    if (closed := refuse_closed(state)) is not None:
        return closed
    if (settled := refuse_settled(reservation, now)) is not None:
        return settled
    for budget in state.held_budgets(reservation):
        move(state, budget, now=now, origin=command.origin, reserved=-reservation.estimate)
    mark_released(state, reservation, reason=command.reason, now=now)
    if command.origin.actor_type is not ActorType.API_KEY:
        state.audit(_release_entry(command, reservation, now))
    return accept(state, command, _released(state, reservation, now), now)


def mark_released(state: BudgetState, reservation: BudgetReservation, *, reason: str | None, now: int) -> None:
    """The balances are the caller's."""
    reservation.status = ReservationStatus.RELEASED
    reservation.finalized_at = now
    reservation.release_reason = reason
    state.touch_reservation(reservation)


def apply_overage(
    state: BudgetState,
    budgets: Sequence[Budget],
    overage: Overage,
    *,
    estimate: int,
    charged: int,
    policy: OveragePolicy,
    reservation_id: str | None,
    now: int,
    origin: Origin,
) -> None:
    """Turn `estimate` of hold into `charged` of spending on every budget, as debt where it was not funded."""
    for budget, debt, capped in zip(budgets, overage.debts, overage.capped, strict=True):
        if debt:
            facts = DebtIncurred(
                scope=budget.scope_path,
                unit=budget.unit,
                reservation_id=reservation_id,
                debt_incurred=debt,
                total_debt=budget.debt + debt,
                overdraft_limit=budget.overdraft_limit,
                overage_policy=policy,
            )
            state.publish(_event(EventType.BUDGET_DEBT_INCURRED, budget.scope_path, facts, now=now, origin=origin))
        move(
            state,
            budget,
            now=now,
            origin=origin,
            reserved=-estimate,
            spent=charged - debt,
            debt=debt,
            capped=True if capped else None,
        )


def _expire(state: BudgetState, reservation: BudgetReservation, now: int) -> None:
    for budget in state.held_budgets(reservation):
        move(state, budget, now=now, origin=None, reserved=-reservation.estimate)
    reservation.status = ReservationStatus.EXPIRED
    state.touch_reservation(reservation)
    facts = ReservationExpired(
        reservation_id=reservation.reservation_id,
        scope=reservation.scope_path,
        unit=reservation.unit,
        estimated_amount=reservation.estimate,
        created_at=reservation.created_at,
        expired_at=reservation.settles_until + 1,
        ttl_ms=reservation.ttl_ms,
        extensions_used=reservation.extensions_used,
    )
    state.publish(_event(EventType.RESERVATION_EXPIRED, reservation.scope_path, facts, now=now, origin=None))


def _other_unit(reservation: BudgetReservation, command: Commit) -> UnitMismatch:
    return UnitMismatch(
        requested_unit=command.actual.unit,
        expected_units=(reservation.unit,),
        message=f"the reservation is in {reservation.unit.value}",
    )


def _overage(
    reservation: BudgetReservation, budgets: Sequence[Budget], actual: int
) -> Overage | BudgetExceeded | OverdraftLimitExceeded:
    """What is charged beyond the estimate; nothing when the actual is within it."""
    extra = actual - reservation.estimate
    if extra <= 0:
        return Overage(0, (0,) * len(budgets), (False,) * len(budgets))
    if reservation.overage_policy is OveragePolicy.REJECT:
        return BudgetExceeded(
            scope=reservation.scope_path,
            unit=reservation.unit,
            requested=actual,
            estimate=reservation.estimate,
            message=f"the actual {actual} is more than the estimate {reservation.estimate}, which REJECT forbids",
        )
    return settle_overage(budgets, extra, reservation.overage_policy)


def _charge(reservation: BudgetReservation, actual: int, overage: Overage) -> int:
    return min(actual, reservation.estimate) + overage.charged


def _all_fit(reservation: BudgetReservation, budgets: Sequence[Budget], actual: int, overage: Overage) -> bool:
    charged = _charge(reservation, actual, overage)
    return all(
        fits(budget, reserved=-reservation.estimate, spent=charged - debt, debt=debt)
        for budget, debt in zip(budgets, overage.debts, strict=True)
    )


def _commit(
    state: BudgetState,
    command: Commit,
    reservation: BudgetReservation,
    *,
    budgets: Sequence[Budget],
    overage: Overage,
    now: int,
) -> CommitAnswer:
    charged = _charge(reservation, command.actual.amount, overage)
    _tell_overage(state, command, reservation, overage, now)
    apply_overage(
        state,
        budgets,
        overage,
        estimate=reservation.estimate,
        charged=charged,
        policy=reservation.overage_policy,
        reservation_id=reservation.reservation_id,
        now=now,
        origin=command.origin,
    )
    reservation.status = ReservationStatus.COMMITTED
    reservation.charged = charged
    reservation.debts = overage.debts if any(overage.debts) else ()
    reservation.finalized_at = now
    reservation.committed_metadata = command.metadata
    reservation.metrics = command.metrics
    state.touch_reservation(reservation)
    return CommitAnswer(
        reservation_id=reservation.reservation_id,
        unit=reservation.unit,
        charged=charged,
        released=reservation.estimate - charged if charged < reservation.estimate else None,
        finalized_at=now,
        balances=tuple(budget.balance() for budget in budgets),
    )


def _tell_overage(
    state: BudgetState, command: Commit, reservation: BudgetReservation, overage: Overage, now: int
) -> None:
    actual = command.actual.amount
    if actual <= reservation.estimate:
        return
    facts = CommitOverage(
        reservation_id=reservation.reservation_id,
        scope=reservation.scope_path,
        unit=reservation.unit,
        estimated_amount=reservation.estimate,
        actual_amount=actual,
        overage=actual - reservation.estimate,
        overage_policy=reservation.overage_policy,
        debt_incurred=saturating_sum(overage.debts),
    )
    kind = EventType.RESERVATION_COMMIT_OVERAGE
    state.publish(_event(kind, reservation.scope_path, facts, now=now, origin=command.origin))


def _release_entry(command: Release, reservation: BudgetReservation, now: int) -> AuditEntry:
    return AuditEntry(
        operation="releaseReservation",
        recorded_at=now,
        resource_type="reservation",
        resource_id=reservation.reservation_id,
        origin=command.origin,
        scope=reservation.scope_path,
        unit=reservation.unit,
        amount=reservation.estimate,
        subject=reservation.subject,
        action=reservation.action,
        # One line in the log, whatever was typed.
        reason=None if command.reason is None else " ".join(command.reason.splitlines()),
        metadata={"actor_type": command.origin.actor_type.value},
    )


def _released(state: BudgetState, reservation: BudgetReservation, now: int) -> ReleaseAnswer:
    return ReleaseAnswer(
        reservation_id=reservation.reservation_id,
        unit=reservation.unit,
        released=reservation.estimate,
        finalized_at=now,
        balances=tuple(budget.balance() for budget in state.held_budgets(reservation)),
    )


def _event(
    kind: EventType,
    scope: str,
    facts: DebtIncurred | ReservationExpired | CommitOverage,
    *,
    now: int,
    origin: Origin | None,
) -> BudgetEvent:
    return BudgetEvent(type=kind, occurred_at=now, scope=scope, facts=facts, origin=origin)
