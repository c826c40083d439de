"""What accepted commands answer: whole, as it was at the instant of the decision, so that a replay can give it again.

Plain immutable values with no reference into the state. Amounts are in the unit beside them, instants in epoch ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from domain.amounts import Unit
from domain.budget.records import FundingOperation
from domain.budget.values import Balance, Caps, Decision, OveragePolicy


class Allowance(NamedTuple):
    """What is left of a minute that a policy limits, told once and never remembered: it is no part of what was decided."""

    remaining: int
    resets_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveAnswer:
    """Live: the hold. Dry run: what it would have been, without id and expiry, or DENY with a `reason_code`."""

    decision: Decision
    scope_path: str
    affected_scopes: tuple[str, ...]
    unit: Unit
    decided_at: int
    reservation_id: str | None = None
    reserved: int | None = None
    expires_at: int | None = None
    remaining_ttl_ms: int | None = None
    """As told now: the one field that a replay tells anew."""
    grace_ms: int | None = None
    overage_policy: OveragePolicy | None = None
    caps: Caps | None = None
    balances: tuple[Balance, ...] = ()
    """Of the budgets that took part, from the widest scope down, after the hold."""
    reason_code: str | None = None
    retry_after_ms: int | None = None
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateAnswer:
    decision: Decision
    affected_scopes: tuple[str, ...]
    decided_at: int
    caps: Caps | None = None
    reason_code: str | None = None
    retry_after_ms: int | None = None
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    """`charged` is less than the actual when the overage was cut; `released` is None unless something came back."""

    reservation_id: str
    unit: Unit
    charged: int
    released: int | None
    finalized_at: int
    balances: tuple[Balance, ...]
    allowance: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAnswer:
    reservation_id: str
    unit: Unit
    released: int
    finalized_at: int
    balances: tuple[Balance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendAnswer:
    reservation_id: str
    expires_at: int
    remaining_ttl_ms: int
    """As told now: the one field that a replay tells anew."""
    extensions_used: int
    decided_at: int
    balances: tuple[Balance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebitAnswer:
    """`charged` is less than `actual` when the charge was cut to what remained."""

    debit_id: str
    unit: Unit
    actual: int
    charged: int
    decided_at: int
    balances: tuple[Balance, ...]

    @property
    def was_cut(self) -> bool:
        return self.charged < self.actual


@dataclass(frozen=True, slots=True, kw_only=True)
class FundAnswer:
    budget_id: str
    operation: FundingOperation
    before: Balance
    after: Balance
    decided_at: int
