"""What can be asked about one tenant's budgets.

The desk has authenticated the caller and made the new ids before a command exists; time comes in with the turn. Shapes
are checked by the decisions themselves, so no edge can forget a rule. In an update, what is None stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Final, TypeAlias

from domain.amounts import Amount, Unit
from domain.budget.records import (
    ExpiryPolicy,
    FundingOperation,
    PolicyStatus,
    RateLimits,
    RolloverPolicy,
    TenantStatus,
    TtlOverride,
)
from domain.budget.replay import fingerprint
from domain.budget.values import Action, Caps, Metrics, Origin, OveragePolicy, Subject
from domain.replay import RequestKey

GRACE_DEFAULT_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`scope_filter`: the scopes that the caller's key is confined to; empty is all of the tenant's."""

    tenant_id: str
    origin: Origin
    scope_filter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCommand(Command):
    """A command under an idempotency key; its fingerprint is taken when it is made, outside of any lock."""

    operation: ClassVar[str] = ""
    idempotency_key: str
    fingerprint: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", fingerprint(self.content()))

    def content(self) -> dict[str, Any]:
        """What makes two requests the same one: all that the client sent but the key, with defaults filled in."""
        raise NotImplementedError

    @property
    def request_key(self) -> RequestKey:
        """Unique per tenant and operation, and per budget reservation where the operation is about one (4.1)."""
        return RequestKey(self.tenant_id, self.operation, self.idempotency_key)


def _who_and_what(subject: Subject, action: Action) -> dict[str, Any]:
    """Lists, because these fields have a fixed order and this runs for every request."""
    return {
        "subject": subject.values,
        "dimensions": subject.dimensions or None,
        "action": (action.kind, action.name, *action.tags),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve(KeyedCommand):
    """Hold `estimate` on every budget of the subject. A dry run shares its keys with live requests (4.1)."""

    operation: ClassVar[str] = "budget.reserve"
    reservation_id: str
    subject: Subject
    action: Action
    estimate: Amount
    ttl_ms: int | None = None
    grace_ms: int | None = None
    overage_policy: OveragePolicy | None = None
    dry_run: bool = False
    metadata: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            **_who_and_what(self.subject, self.action),
            "estimate": self.estimate,
            "ttl_ms": self.ttl_ms,  # as asked for: a changed default must not turn a retry into a mismatch
            "grace_period_ms": GRACE_DEFAULT_MS if self.grace_ms is None else self.grace_ms,
            "overage_policy": self.overage_policy,
            "dry_run": self.dry_run,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(KeyedCommand):
    """Ask whether a reserve would hold now. It holds nothing (the wire's `decide`)."""

    operation: ClassVar[str] = "budget.evaluate"
    subject: Subject
    action: Action
    estimate: Amount
    metadata: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            **_who_and_what(self.subject, self.action),
            "estimate": self.estimate,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationCommand(KeyedCommand):
    reservation_id: str

    @property
    def request_key(self) -> RequestKey:
        return RequestKey(self.tenant_id, f"{self.operation}/{self.reservation_id}", self.idempotency_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(ReservationCommand):
    """Settle a hold with what was really used."""

    operation: ClassVar[str] = "budget.commit"
    actual: Amount
    metrics: Metrics | None = None
    metadata: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            "reservation_id": self.reservation_id,
            "actual": self.actual,
            "metrics": None if self.metrics is None else self.metrics.content(),
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(ReservationCommand):
    """Give a hold back unused."""

    operation: ClassVar[str] = "budget.release"
    reason: str | None = None

    def content(self) -> dict[str, Any]:
        return {"reservation_id": self.reservation_id, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend(ReservationCommand):
    """Move a hold's expiry, counted from where it stands and not from now."""

    operation: ClassVar[str] = "budget.extend"
    extend_by_ms: int
    metadata: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            "reservation_id": self.reservation_id,
            "extend_by_ms": self.extend_by_ms,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Debit(KeyedCommand):
    """Spend without a hold (the wire's `POST /v1/events`)."""

    operation: ClassVar[str] = "budget.debit"
    debit_id: str
    subject: Subject
    action: Action
    actual: Amount
    overage_policy: OveragePolicy | None = None
    metrics: Metrics | None = None
    client_time_ms: int | None = None
    metadata: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        return {
            **_who_and_what(self.subject, self.action),
            "actual": self.actual,
            "overage_policy": self.overage_policy,
            "metrics": None if self.metrics is None else self.metrics.content(),
            "client_time_ms": self.client_time_ms,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fund(KeyedCommand):
    """Change what a budget has to give. `spent` counts for RESET_SPENT only. `bulk` as in `UpdateTenant`."""

    operation: ClassVar[str] = "budget.fund"
    funding_id: str
    scope: str
    unit: Unit
    kind: FundingOperation
    amount: Amount
    spent: Amount | None = None
    reason: str | None = None
    metadata: Mapping[str, Any] | None = None
    bulk: str | None = None

    def content(self) -> dict[str, Any]:
        return {
            "scope": self.scope,
            "unit": self.unit,
            "operation": self.kind,
            "amount": self.amount,
            "spent": self.spent,
            "reason": self.reason,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GoverningCommand(KeyedCommand):
    """A change of what is there to be spent, of policies or of the tenant itself. Where the client sent no key the desk
    makes one, so that a turn whose commit was in doubt knows what it has done."""

    made_by_desk: ClassVar[frozenset[str]] = frozenset()
    """Fields that are no part of what the client sent."""

    def content(self) -> dict[str, Any]:
        left_out = _FRAME | self.made_by_desk
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name not in left_out}


_FRAME: Final = frozenset(each.name for each in fields(KeyedCommand))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCommand(GoverningCommand):
    scope: str
    unit: Unit
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBudget(BudgetCommand):
    operation: ClassVar[str] = "budget.create"
    made_by_desk: ClassVar[frozenset[str]] = frozenset({"budget_id"})
    budget_id: str
    allocated: Amount
    overdraft_limit: Amount | None = None
    commit_overage_policy: OveragePolicy | None = None
    rollover_policy: RolloverPolicy = RolloverPolicy.NONE
    period_start_at: int | None = None
    period_end_at: int | None = None
    caps: Caps | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBudget(BudgetCommand):
    operation: ClassVar[str] = "budget.update"
    overdraft_limit: Amount | None = None
    commit_overage_policy: OveragePolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeBudget(BudgetCommand):
    operation: ClassVar[str] = "budget.freeze"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfreezeBudget(BudgetCommand):
    operation: ClassVar[str] = "budget.unfreeze"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseBudget(BudgetCommand):
    operation: ClassVar[str] = "budget.close"
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePolicy(GoverningCommand):
    operation: ClassVar[str] = "budget.create_policy"
    made_by_desk: ClassVar[frozenset[str]] = frozenset({"policy_id"})
    policy_id: str
    name: str
    scope_pattern: str
    description: str | None = None
    priority: int = 0
    caps: Caps | None = None
    commit_overage_policy: OveragePolicy | None = None
    ttl_override: TtlOverride | None = None
    rate_limits: RateLimits | None = None
    effective_from_at: int | None = None
    effective_until_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy(GoverningCommand):
    operation: ClassVar[str] = "budget.update_policy"
    policy_id: str
    name: str | None = None
    description: str | None = None
    priority: int | None = None
    caps: Caps | None = None
    commit_overage_policy: OveragePolicy | None = None
    ttl_override: TtlOverride | None = None
    rate_limits: RateLimits | None = None
    status: PolicyStatus | None = None
    effective_from_at: int | None = None
    effective_until_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTenant(GoverningCommand):
    """Make a tenant with its defaults. One that is there already stays as it is."""

    operation: ClassVar[str] = "budget.create_tenant"
    name: str
    parent_tenant_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    default_overage_policy: OveragePolicy | None = None
    default_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    max_extensions: int | None = None
    expiry_policy: ExpiryPolicy = ExpiryPolicy.AUTO_RELEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTenant(GoverningCommand):
    """Change a tenant's defaults, name or status. The status CLOSED takes all its budgets with it (section 7).

    `bulk`: the correlation id of the bulk action that this is a part of. Its event bears it, and what is on record is the
    action as a whole (section 11).
    """

    operation: ClassVar[str] = "budget.update_tenant"
    made_by_desk: ClassVar[frozenset[str]] = frozenset({"bulk"})
    status: TenantStatus | None = None
    name: str | None = None
    metadata: Mapping[str, Any] | None = None
    default_overage_policy: OveragePolicy | None = None
    default_ttl_ms: int | None = None
    max_ttl_ms: int | None = None
    max_extensions: int | None = None
    expiry_policy: ExpiryPolicy | None = None
    denies_on_any_debt: bool | None = None
    extension_lead_max_ms: int | None = None
    bulk: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDue(Command):
    """Nothing but the expiries that are due, which every turn applies first."""


BudgetStatusCommand: TypeAlias = FreezeBudget | UnfreezeBudget | CloseBudget
GovernanceCommand: TypeAlias = (
    CreateBudget | UpdateBudget | BudgetStatusCommand | CreatePolicy | UpdatePolicy | CreateTenant | UpdateTenant
)
RuntimeCommand: TypeAlias = Reserve | Evaluate | Commit | Release | Extend | Debit
AnyCommand: TypeAlias = RuntimeCommand | Fund | GovernanceCommand | ExpireDue
