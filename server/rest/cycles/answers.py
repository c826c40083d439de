"""Answers of the runtime plane as its documents spell them: what is absent is left out, and nothing is ever null (1.0)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from domain.amounts import Unit
from domain.budget.answers import (
    Allowance,
    CommitAnswer,
    DebitAnswer,
    EvaluateAnswer,
    ExtendAnswer,
    ReleaseAnswer,
    ReserveAnswer,
)
from domain.budget.records import BudgetReservation, ReservationStatus
from domain.budget.values import Action, Balance, Caps
from domain.terms import SECOND_MS

Document = dict[str, Any]

METADATA: Final = "metadata"
COMMITTED_METADATA: Final = "committed_metadata"
EVIDENCE: Final = "evidence"
EVERYTHING: Final = frozenset({METADATA, COMMITTED_METADATA, EVIDENCE})


def show_amount(unit: Unit, amount: int) -> Document:
    """The unit is written by the encoder, which is faster than asking the enumeration for its word."""
    return {"unit": unit, "amount": amount}


def show_balance(balance: Balance) -> Document:
    """Debt, its limit and the mark appear when there is something to say, as in the reference (6.2)."""
    path, unit, allocated, reserved, spent, debt, overdraft_limit, is_over_limit = balance
    shown: Document = {
        "scope": balance.scope,
        "scope_path": path,
        "remaining": {"unit": unit, "amount": balance.remaining},
        "reserved": {"unit": unit, "amount": reserved},
        "spent": {"unit": unit, "amount": spent},
        "allocated": {"unit": unit, "amount": allocated},
    }
    if debt:
        shown["debt"] = show_amount(unit, debt)
    if overdraft_limit:
        shown["overdraft_limit"] = show_amount(unit, overdraft_limit)
    if is_over_limit:
        shown["is_over_limit"] = True
    return shown


def show_balances(balances: Iterable[Balance]) -> list[Document]:
    return [show_balance(balance) for balance in balances]


def show_caps(caps: Caps) -> Document:
    shown: Document = {}
    if caps.max_tokens is not None:
        shown["max_tokens"] = caps.max_tokens
    if caps.max_steps_remaining is not None:
        shown["max_steps_remaining"] = caps.max_steps_remaining
    if caps.tool_allowlist:
        shown["tool_allowlist"] = list(caps.tool_allowlist)
    if caps.tool_denylist:
        shown["tool_denylist"] = list(caps.tool_denylist)
    if caps.cooldown_ms is not None:
        shown["cooldown_ms"] = caps.cooldown_ms
    return shown


def show_reserve(answer: ReserveAnswer) -> Document:
    """Live and dry run alike: the answer itself has no id and no expiry when nothing is held (1.1)."""
    shown: Document = {"decision": answer.decision.value, "affected_scopes": list(answer.affected_scopes)}
    if answer.reservation_id is not None:
        shown["reservation_id"] = answer.reservation_id
        shown["expires_at_ms"] = answer.expires_at
        shown["remaining_ttl_ms"] = answer.remaining_ttl_ms
    shown["scope_path"] = answer.scope_path
    if answer.reserved is not None:
        shown["reserved"] = show_amount(answer.unit, answer.reserved)
    if answer.balances:
        shown["balances"] = show_balances(answer.balances)
    _add_verdict(shown, caps=answer.caps, reason_code=answer.reason_code, retry_after_ms=answer.retry_after_ms)
    return shown


def show_evaluate(answer: EvaluateAnswer) -> Document:
    shown: Document = {"decision": answer.decision.value, "affected_scopes": list(answer.affected_scopes)}
    _add_verdict(shown, caps=answer.caps, reason_code=answer.reason_code, retry_after_ms=answer.retry_after_ms)
    return shown


def show_commit(answer: CommitAnswer) -> Document:
    shown: Document = {"status": "COMMITTED", "charged": show_amount(answer.unit, answer.charged)}
    if answer.released is not None:
        shown["released"] = show_amount(answer.unit, answer.released)
    shown["balances"] = show_balances(answer.balances)
    return shown


def show_release(answer: ReleaseAnswer) -> Document:
    return {
        "status": "RELEASED",
        "released": show_amount(answer.unit, answer.released),
        "balances": show_balances(answer.balances),
    }


def show_extend(answer: ExtendAnswer) -> Document:
    return {
        "status": "ACTIVE",
        "expires_at_ms": answer.expires_at,
        "remaining_ttl_ms": answer.remaining_ttl_ms,
        "balances": show_balances(answer.balances),
    }


def show_debit(answer: DebitAnswer) -> Document:
    shown: Document = {"status": "APPLIED", "event_id": answer.debit_id}
    if answer.was_cut:
        shown["charged"] = show_amount(answer.unit, answer.charged)
    shown["balances"] = show_balances(answer.balances)
    return shown


def show_reservation(
    held: BudgetReservation,
    status: ReservationStatus,
    *,
    include: Collection[str] = EVERYTHING,
    evidence: Document | None = None,
) -> Document:
    """`status` as of now. `include`: which of the heavy fields are wanted. `evidence`: references by artifact, if any."""
    shown: Document = {
        "reservation_id": held.reservation_id,
        "status": status.value,
        "idempotency_key": held.idempotency_key,
        "subject": held.subject.content(),
        "action": _action(held.action),
        "reserved": show_amount(held.unit, held.estimate),
        "created_at_ms": held.created_at,
        "expires_at_ms": held.expires_at,
        "scope_path": held.scope_path,
        "affected_scopes": list(held.affected_scopes),
    }
    if held.charged is not None:
        shown["committed"] = show_amount(held.unit, held.charged)
    if held.finalized_at is not None:
        shown["finalized_at_ms"] = held.finalized_at
    if METADATA in include and held.metadata is not None:
        shown[METADATA] = dict(held.metadata)
    if COMMITTED_METADATA in include and held.committed_metadata is not None:
        shown[COMMITTED_METADATA] = dict(held.committed_metadata)
    if EVIDENCE in include and evidence:
        shown[EVIDENCE] = evidence
    return shown


def rate_headers(allowance: Allowance | None) -> tuple[tuple[str, str], ...]:
    """Where a policy limits how often this may be asked, and only there (1.0, decision 35)."""
    if allowance is None:
        return ()
    resets_at_s = -(-allowance.resets_at // SECOND_MS)
    return (("x-ratelimit-remaining", str(allowance.remaining)), ("x-ratelimit-reset", str(resets_at_s)))


def _action(action: Action) -> Document:
    shown: Document = {"kind": action.kind, "name": action.name}
    if action.tags:
        shown["tags"] = list(action.tags)
    return shown


def _add_verdict(shown: Document, *, caps: Caps | None, reason_code: str | None, retry_after_ms: int | None) -> None:
    if caps is not None:
        shown["caps"] = show_caps(caps)
    if reason_code is not None:
        shown["reason_code"] = reason_code
    if retry_after_ms is not None:
        shown["retry_after_ms"] = retry_after_ms
