"""The first question of every keyed decision: was this request accepted before? (Check 11 of 5.3; section 4.2.)

It comes before the tenant's status, the clock and every balance, so a lost response can always be fetched again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias, TypeVar

from domain.budget.answers import Allowance, CommitAnswer, EvaluateAnswer, ExtendAnswer, ReserveAnswer
from domain.budget.commands import KeyedCommand
from domain.budget.records import ReservationStatus
from domain.budget.refusals import IdempotencyMismatch
from domain.budget.replay import RememberedAnswer, Repeated
from domain.budget.state import BudgetState
from domain.outcomes import Accepted, Refusal

Answer = TypeVar("Answer")
Limited = TypeVar("Limited", ReserveAnswer, EvaluateAnswer, CommitAnswer)

BudgetOutcome: TypeAlias = Accepted[Answer] | Repeated[Answer] | Refusal


def repeated(
    state: BudgetState, command: KeyedCommand, kind: type[Answer], now: int
) -> Repeated[Answer] | IdempotencyMismatch | None:
    """The answer given before, of this `kind`; a refusal when the content differs; None when the key is new."""
    remembered = state.remembered.get(command.request_key)
    if remembered is None:
        return None
    if remembered.fingerprint != command.fingerprint:
        return IdempotencyMismatch(idempotency_key=command.idempotency_key)
    answer = _told_anew(state, remembered.answer, now)
    assert isinstance(answer, kind), f"{command.operation} remembers a {type(answer).__name__}"
    return Repeated(answer)


def accept(state: BudgetState, command: KeyedCommand, answer: Answer, now: int) -> Accepted[Answer]:
    """Remember the answer under the command's key."""
    remembered = RememberedAnswer(fingerprint=command.fingerprint, answer=answer, answered_at=now)
    state.remember(command.request_key, remembered)
    return Accepted(answer)


def accept_limited(
    state: BudgetState, command: KeyedCommand, answer: Limited, *, allowance: Allowance | None, now: int
) -> Accepted[Limited]:
    """The same, and this once it is told what is left of the minute."""
    accepted = accept(state, command, answer, now)
    return accepted if allowance is None else Accepted(replace(answer, allowance=allowance))


def _told_anew(state: BudgetState, answer: object, now: int) -> object:
    """All as it was but the remaining lifetime: of the expiry told then, and 0 once the hold is over (section 3)."""
    if isinstance(answer, ExtendAnswer):
        return replace(answer, remaining_ttl_ms=_lead(state, answer.reservation_id, answer.expires_at, now))
    if isinstance(answer, ReserveAnswer) and answer.reservation_id is not None and answer.expires_at is not None:
        return replace(answer, remaining_ttl_ms=_lead(state, answer.reservation_id, answer.expires_at, now))
    return answer


def _lead(state: BudgetState, reservation_id: str, expires_at: int, now: int) -> int:
    reservation = state.reservations.get(reservation_id)
    if reservation is None or reservation.status_at(now) is not ReservationStatus.ACTIVE:
        return 0
    return max(0, expires_at - now)
