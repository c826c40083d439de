"""The things a tenant's books are about: the tenant, its budgets, the holds on them, its policies, and direct debits.

Storage keeps one row of each. They change in place, and only through `state.BudgetState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from domain.amounts import INT64_MAX, Unit
from domain.budget.events import MILLION
from domain.budget.patterns import ScopePattern
from domain.budget.values import Action, Balance, Caps, Metrics, OveragePolicy, Subject
from domain.terms import DAY_MS, HOUR_MS, MINUTE_MS

DEFAULT_TTL_MS: Final = MINUTE_MS
DEFAULT_TTL_MAX_MS: Final = HOUR_MS
DEFAULT_EXTENSIONS_MAX: Final = 10
TTL_LEAST_MS: Final = 1_000
TTL_MOST_MS: Final = DAY_MS


class TenantStatus(StrEnum):
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


class BudgetStatus(StrEnum):
    ACTIVE = "ACTIVE"
    FROZEN = "FROZEN"
    CLOSED = "CLOSED"


class ReservationStatus(StrEnum):
    ACTIVE = "ACTIVE"
    COMMITTED = "COMMITTED"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


class PolicyStatus(StrEnum):
    ACTIVE = "ACTIVE"
    DISABLED = "DISABLED"


class ExpiryPolicy(StrEnum):
    """Kept as it was set. All three act as AUTO_RELEASE: what is overdue is given back after its grace (section 3)."""

    AUTO_RELEASE = "AUTO_RELEASE"
    MANUAL_CLEANUP = "MANUAL_CLEANUP"
    GRACE_ONLY = "GRACE_ONLY"


class RolloverPolicy(StrEnum):
    NONE = "NONE"
    CARRY_FORWARD = "CARRY_FORWARD"
    CAP_AT_ALLOCATED = "CAP_AT_ALLOCATED"


@dataclass(slots=True, kw_only=True)
class Tenant:
    """The head: the row that every decision about this tenant's budgets locks. What is None has the general default."""

    tenant_id: str
    status: TenantStatus | None = TenantStatus.ACTIVE
    """None: the stored status could not be understood, and everything fails closed (section 7)."""
    name: str = ""
    metadata: Mapping[str, Any] | None = None
    default_overage_policy: OveragePolicy | None = None
    default_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    max_extensions: int | None = None
    expiry_policy: ExpiryPolicy = ExpiryPolicy.AUTO_RELEASE
    parent_tenant_id: str | None = None
    """The tenant that it belongs to, as was said when it was made. Nothing is decided by it."""
    denies_on_any_debt: bool = False
    """Strict reading of the debt rule: any debt blocks new holds, whatever the overdraft limit (decision 2)."""
    extension_lead_max_ms: int | None = None
    """How far ahead of now an extension may reach; None is no bound (decision 18)."""
    clock_at: int = 0
    """The last instant decided at: no later turn goes behind it."""
    suspended_at: int | None = None
    closed_at: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantKey:
    """An API key, as far as closing its tenant is concerned."""

    key_id: str
    name: str


@dataclass(slots=True, kw_only=True)
class Budget:
    """The balances of one scope and unit. `remaining` and `is_over_limit` are derived, never stored."""

    budget_id: str
    scope_path: str
    unit: Unit
    allocated: int
    created_at: int
    reserved: int = 0
    spent: int = 0
    debt: int = 0
    overdraft_limit: int = 0
    capped: bool = False
    """A charge had to be cut to what remained: blocks new holds until the budget is funded (decision 4)."""
    status: BudgetStatus = BudgetStatus.ACTIVE
    commit_overage_policy: OveragePolicy | None = None
    caps: Caps | None = None
    rollover_policy: RolloverPolicy = RolloverPolicy.NONE
    period_start_at: int | None = None
    period_end_at: int | None = None
    metadata: Mapping[str, Any] | None = None
    updated_at: int | None = None
    closed_at: int | None = None

    @property
    def remaining(self) -> int:
        """I1. Negative when debt or a smaller allocation made it so."""
        return self.allocated - self.spent - self.reserved - self.debt

    @property
    def utilization_millionths(self) -> int:
        """Spent / allocated, rounded down; of nothing it is nothing."""
        return min(self.spent * MILLION // self.allocated, INT64_MAX) if self.allocated else 0

    @property
    def is_over_limit(self) -> bool:
        """Strictly above: a debt that equals its limit is within it (decision 3)."""
        return self.capped or self.debt > self.overdraft_limit

    def balance(self) -> Balance:
        return Balance(
            self.scope_path,
            self.unit,
            self.allocated,
            self.reserved,
            self.spent,
            self.debt,
            self.overdraft_limit,
            self.is_over_limit,
        )


@dataclass(slots=True, kw_only=True)
class BudgetReservation:
    """A hold of `estimate` on each of its budgets. What was fixed when it was made stays, the unit included (I6)."""

    reservation_id: str
    idempotency_key: str
    subject: Subject
    action: Action
    unit: Unit
    estimate: int
    scope_path: str
    affected_scopes: tuple[str, ...]
    budgeted_scopes: tuple[str, ...]
    """The scopes that had a budget in the unit then: what settles, whatever budgets are made later (section 2.2)."""
    overage_policy: OveragePolicy
    created_at: int
    expires_at: int
    ttl_ms: int
    grace_ms: int
    max_extensions: int
    extensions_used: int = 0
    status: ReservationStatus = ReservationStatus.ACTIVE
    """As stored. Decisions and reads go by `status_at`."""
    metadata: Mapping[str, Any] | None = None
    charged: int | None = None
    debts: tuple[int, ...] = ()
    """The part of the charge that became debt, for each of `budgeted_scopes`; empty when none did."""
    finalized_at: int | None = None
    committed_metadata: Mapping[str, Any] | None = None
    metrics: Metrics | None = None
    release_reason: str | None = None

    @property
    def settles_until(self) -> int:
        """The last instant at which it may still be committed or released."""
        return self.expires_at + self.grace_ms

    def status_at(self, now: int) -> ReservationStatus:
        """Expired as soon as its grace is over, whether or not anybody has noticed yet (decision 19)."""
        if self.status is ReservationStatus.ACTIVE and now > self.settles_until:
            return ReservationStatus.EXPIRED
        return self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlOverride:
    """What a policy puts in place of the tenant's values."""

    default_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    max_extensions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Accepted calls in each minute of UTC, over all that the policy governs."""

    max_reservations_per_minute: int | None = None
    max_commits_per_minute: int | None = None


@dataclass(slots=True, kw_only=True)
class Policy:
    policy_id: str
    name: str
    pattern: ScopePattern
    created_at: int
    description: str | None = None
    priority: int = 0
    caps: Caps | None = None
    commit_overage_policy: OveragePolicy | None = None
    ttl_override: TtlOverride | None = None
    rate_limits: RateLimits | None = None
    status: PolicyStatus = PolicyStatus.ACTIVE
    effective_from_at: int | None = None
    effective_until_at: int | None = None
    updated_at: int | None = None

    def is_effective_at(self, now: int) -> bool:
        """Active and inside [from, until)."""
        return (
            self.status is PolicyStatus.ACTIVE
            and (self.effective_from_at is None or now >= self.effective_from_at)
            and (self.effective_until_at is None or now < self.effective_until_at)
        )

    @property
    def precedence(self) -> tuple[int, int, int, str]:
        """Highest priority, then the most segments, then the newest; the id makes it total (section 11.6)."""
        return (-self.priority, -self.pattern.specificity, -self.created_at, self.policy_id)


class RateKind(StrEnum):
    RESERVATIONS = "reservations"
    COMMITS = "commits"


@dataclass(slots=True, kw_only=True)
class RateWindow:
    """How many calls a policy has let through in the minute that starts at `minute_at`."""

    policy_id: str
    kind: RateKind
    minute_at: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectDebit:
    """A direct spend, kept for good."""

    debit_id: str
    idempotency_key: str
    subject: Subject
    action: Action
    unit: Unit
    actual: int
    charged: int
    scope_path: str
    budgeted_scopes: tuple[str, ...]
    debts: tuple[int, ...]
    """As in a reservation."""
    overage_policy: OveragePolicy
    created_at: int
    metrics: Metrics | None = None
    client_time_ms: int | None = None
    """What the client's clock said. Nothing reads it (section 1.6)."""
    metadata: Mapping[str, Any] | None = None


class FundingOperation(StrEnum):
    CREDIT = "CREDIT"
    DEBIT = "DEBIT"
    RESET = "RESET"
    RESET_SPENT = "RESET_SPENT"
    REPAY_DEBT = "REPAY_DEBT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Funding:
    """One change of what a budget has to give, with how it stood before and after."""

    funding_id: str
    budget_id: str
    operation: FundingOperation
    amount: int
    spent_given: int | None
    before: Balance
    after: Balance
    created_at: int
    idempotency_key: str
    reason: str | None = None
    metadata: Mapping[str, Any] | None = None
