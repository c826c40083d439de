"""Decisions about the tenant: its making and defaults, suspend, reactivate, and close with all that it holds (section 7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from domain.amounts import INT64_MAX
from domain.budget.commands import CreateTenant, UpdateTenant
from domain.budget.events import CREATED, DONE, AuditEntry, BudgetEvent, EventType, TenantCascade, TenantLifecycle
from domain.budget.records import Budget, BudgetStatus, ReservationStatus, Tenant, TenantStatus
from domain.budget.refusals import Duplicate
from domain.budget.repeats import BudgetOutcome, accept, repeated
from domain.budget.settlement import mark_released
from domain.budget.shapes import NAME_MAX, check_key, check_name, check_range, check_ttl, invalid
from domain.budget.state import BudgetState
from domain.budget.tenancy import refuse_closed
from domain.budget.values import ActorType
from domain.identity import TENANT_ID
from domain.outcomes import Accepted, InvalidInput

CREATE_TENANT: Final = "createTenant"
UPDATE_TENANT: Final = "updateTenant"
CASCADE_REASON: Final = "tenant_closed"

_DESCRIPTIVE: Final = ("name", "metadata")
_SETTINGS: Final = (
    "default_overage_policy",
    "default_ttl_ms",
    "max_ttl_ms",
    "max_extensions",
    "expiry_policy",
    "denies_on_any_debt",
    "extension_lead_max_ms",
)
_STATUS_EVENTS: Final = {
    TenantStatus.ACTIVE: EventType.TENANT_REACTIVATED,
    TenantStatus.SUSPENDED: EventType.TENANT_SUSPENDED,
    TenantStatus.CLOSED: EventType.TENANT_CLOSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantAnswer:
    """`closed_now`: this very command closed it, so all that it holds goes in the same flush (mode A)."""

    tenant: Tenant
    changed_fields: tuple[str, ...]
    closed_now: bool = False
    created: bool = False
    correlation_id: str | None = None
    """Of the cascade, for what else is taken down with the tenant."""


def first_sight(command: CreateTenant, now: int) -> tuple[BudgetState, Accepted[TenantAnswer]] | InvalidInput:
    """The books of a tenant that there is not yet, with what there is to tell of it, and the answer. Refuses
    INVALID_INPUT."""
    if (refusal := _check(command)) is not None:
        return refusal
    tenant = Tenant(
        tenant_id=command.tenant_id,
        name=command.name,
        parent_tenant_id=command.parent_tenant_id,
        metadata=command.metadata,
        default_overage_policy=command.default_overage_policy,
        default_ttl_ms=command.default_ttl_ms,
        max_ttl_ms=command.max_ttl_ms,
        max_extensions=command.max_extensions,
        expiry_policy=command.expiry_policy,
        clock_at=now,
    )
    state = BudgetState(tenant, is_complete=True)
    state.touch_tenant()
    facts = TenantLifecycle(
        tenant_id=tenant.tenant_id, previous_status=None, new_status=TenantStatus.ACTIVE.value, changed_fields=()
    )
    kind = EventType.TENANT_CREATED
    state.publish(BudgetEvent(type=kind, occurred_at=now, scope=None, facts=facts, origin=command.origin))
    state.audit(_entry(command, CREATE_TENANT, ("tenant", tenant.tenant_id), None, now, status=CREATED))
    answer = TenantAnswer(tenant=replace(tenant), changed_fields=(), created=True)
    return state, accept(state, command, answer, now)


def decide_create_tenant(state: BudgetState, command: CreateTenant, now: int) -> BudgetOutcome[TenantAnswer]:
    """The tenant is there already: it stays as it is, and the answer says so.

    Refuses INVALID_INPUT, IDEMPOTENCY_MISMATCH, then DUPLICATE_RESOURCE: the id is that of a tenant with another name
    (11.1).
    """
    if (refusal := _check(command)) is not None:
        return refusal
    if (repeat := repeated(state, command, TenantAnswer, now)) is not None:
        return repeat
    if command.name != state.tenant.name:
        message = f"the tenant {command.tenant_id} is there already, under another name"
        return Duplicate(resource="tenant", resource_id=command.tenant_id, message=message)
    state.audit(_entry(command, CREATE_TENANT, ("tenant", command.tenant_id), None, now))
    return accept(state, command, TenantAnswer(tenant=replace(state.tenant), changed_fields=()), now)


def decide_update_tenant(state: BudgetState, command: UpdateTenant, now: int) -> BudgetOutcome[TenantAnswer]:
    """Change what is given, with exactly one event: of the status when it changes, else of settings, else of the rest.

    Refuses INVALID_INPUT, IDEMPOTENCY_MISMATCH, then TENANT_CLOSED. Closing a closed tenant again is accepted and does
    nothing; like all that changes nothing, it is on record.
    """
    if (refusal := _check(command)) is not None:
        return refusal
    if (repeat := repeated(state, command, TenantAnswer, now)) is not None:
        return repeat
    tenant = state.tenant
    if tenant.status is TenantStatus.CLOSED and command.status is TenantStatus.CLOSED:
        _put_on_record(state, command, None, now)
        return accept(state, command, TenantAnswer(tenant=replace(tenant), changed_fields=()), now)
    if (closed := refuse_closed(state)) is not None:
        return closed
    previous = tenant.status
    changed = _changed(tenant, command)
    closes = "status" in changed and command.status is TenantStatus.CLOSED
    correlation_id = _correlation(command) if closes else None
    if closes:
        _cascade(state, command, correlation_id, now)
    _apply(tenant, command, changed, now)
    if changed:
        state.touch_tenant()
        _tell(state, command, previous=previous, changed=changed, correlation_id=correlation_id, now=now)
    _put_on_record(state, command, correlation_id, now)
    answer = TenantAnswer(
        tenant=replace(tenant), changed_fields=changed, closed_now=closes, correlation_id=correlation_id
    )
    return accept(state, command, answer, now)


def _check(command: CreateTenant | UpdateTenant) -> InvalidInput | None:
    if command.name is not None and (refusal := check_name(command.name, field="name", most=NAME_MAX)) is not None:
        return refusal
    if isinstance(command, CreateTenant) and (refused := _check_parent(command)) is not None:
        return refused
    lead_ms = command.extension_lead_max_ms if isinstance(command, UpdateTenant) else None
    return (
        check_key(command)
        or check_ttl(command.default_ttl_ms, field="default_reservation_ttl_ms")
        or check_ttl(command.max_ttl_ms, field="max_reservation_ttl_ms")
        or check_range(command.max_extensions, field="max_reservation_extensions", least=0, most=INT64_MAX)
        or check_range(lead_ms, field="extension_lead_max_ms", least=1, most=INT64_MAX)
    )


def _check_parent(command: CreateTenant) -> InvalidInput | None:
    parent = command.parent_tenant_id
    if parent is None or (TENANT_ID.fullmatch(parent) and parent != command.tenant_id):
        return None
    return invalid("parent_tenant_id", "parent_tenant_id must be the id of another tenant", reason="grammar")


def _changed(tenant: Tenant, command: UpdateTenant) -> tuple[str, ...]:
    names = ("status", *_SETTINGS, *_DESCRIPTIVE)
    return tuple(
        name for name in names if (value := getattr(command, name)) is not None and value != getattr(tenant, name)
    )


def _apply(tenant: Tenant, command: UpdateTenant, changed: tuple[str, ...], now: int) -> None:
    for name in changed:
        setattr(tenant, name, getattr(command, name))
    if "status" in changed:
        tenant.suspended_at = now if tenant.status is TenantStatus.SUSPENDED else None
        tenant.closed_at = now if tenant.status is TenantStatus.CLOSED else None


def _tell(
    state: BudgetState,
    command: UpdateTenant,
    *,
    previous: TenantStatus | None,
    changed: tuple[str, ...],
    correlation_id: str | None,
    now: int,
) -> None:
    tenant = state.tenant
    assert tenant.status is not None, "guarded"
    assert previous is not None, "guarded"
    facts = TenantLifecycle(
        tenant_id=tenant.tenant_id,
        previous_status=previous.value,
        new_status=tenant.status.value,
        changed_fields=changed,
    )
    event = BudgetEvent(
        type=_event_type(tenant.status, changed),
        occurred_at=now,
        scope=None,
        facts=facts,
        origin=command.origin,
        correlation_id=command.bulk or correlation_id,
    )
    state.publish(event)


def _put_on_record(state: BudgetState, command: UpdateTenant, correlation_id: str | None, now: int) -> None:
    """Unless it is a part of something that is on record as a whole, or a job that asks again and again."""
    if command.bulk is None and command.origin.actor_type is not ActorType.SYSTEM:
        state.audit(_entry(command, UPDATE_TENANT, ("tenant", command.tenant_id), correlation_id, now))


def _event_type(status: TenantStatus, changed: tuple[str, ...]) -> EventType:
    if "status" in changed:
        return _STATUS_EVENTS[status]
    return EventType.TENANT_SETTINGS_CHANGED if set(changed) & set(_SETTINGS) else EventType.TENANT_UPDATED


# -- the close cascade, mode A: holds, budgets, keys; the tenant's status follows in the same flush -------------------


def _correlation(command: UpdateTenant) -> str:
    return f"tenant_close_cascade:{command.tenant_id}:{command.origin.request_id or ''}"


def _cascade(state: BudgetState, command: UpdateTenant, correlation_id: str | None, now: int) -> None:
    assert state.is_complete, "a cascade needs every active reservation of the tenant"
    for reservation in list(state.reservations.values()):
        if reservation.status is ReservationStatus.ACTIVE:
            mark_released(state, reservation, reason=CASCADE_REASON, now=now)
            operation, name = EventType.RESERVATION_RELEASED_VIA_CASCADE.value, reservation.reservation_id
            state.audit(_entry(command, operation, ("reservation", name), correlation_id, now))
    for budget in sorted(state.all_budgets(), key=lambda budget: (budget.scope_path, budget.unit)):
        for kind, facts in _close_budget(state, budget, now):
            state.publish(
                BudgetEvent(
                    type=kind,
                    occurred_at=now,
                    scope=budget.scope_path,
                    facts=facts,
                    origin=command.origin,
                    correlation_id=correlation_id,
                )
            )
            if kind is EventType.BUDGET_CLOSED_VIA_CASCADE:
                state.audit(_entry(command, kind.value, ("budget", budget.budget_id), correlation_id, now))
    _revoke_keys(state, command, correlation_id, now)


def _revoke_keys(state: BudgetState, command: UpdateTenant, correlation_id: str | None, now: int) -> None:
    kind = EventType.API_KEY_REVOKED_VIA_CASCADE
    for key in state.revoke_keys():
        facts = TenantCascade(
            key_id=key.key_id,
            name=key.name,
            prior_status="ACTIVE",
            new_status="REVOKED",
            cascade_reason=CASCADE_REASON,
        )
        event = BudgetEvent(
            type=kind,
            occurred_at=now,
            scope=None,
            facts=facts,
            origin=command.origin,
            correlation_id=correlation_id,
        )
        state.publish(event)
        state.audit(_entry(command, kind.value, ("api_key", key.key_id), correlation_id, now))


def _close_budget(state: BudgetState, budget: Budget, now: int) -> list[tuple[EventType, TenantCascade]]:
    """Drain what was held, in one go for all its reservations, and close. Returns what there is to tell of it."""
    told = []
    if drained := budget.reserved:
        budget.reserved, budget.updated_at = 0, now
        state.touch_budget(budget)
        told.append((EventType.RESERVATION_RELEASED_VIA_CASCADE, _facts(budget, released_amount=drained)))
    if (prior := budget.status) is not BudgetStatus.CLOSED:
        budget.status, budget.closed_at, budget.updated_at = BudgetStatus.CLOSED, now, now
        state.touch_budget(budget)
        facts = _facts(budget, prior_status=prior.value, new_status=BudgetStatus.CLOSED.value)
        told.append((EventType.BUDGET_CLOSED_VIA_CASCADE, facts))
    return told


def _facts(
    budget: Budget,
    *,
    prior_status: str | None = None,
    new_status: str | None = None,
    released_amount: int | None = None,
) -> TenantCascade:
    return TenantCascade(
        ledger_id=budget.budget_id,
        scope=budget.scope_path,
        unit=budget.unit,
        prior_status=prior_status,
        new_status=new_status,
        released_amount=released_amount,
        cascade_reason=CASCADE_REASON,
    )


def _entry(
    command: CreateTenant | UpdateTenant,
    operation: str,
    resource: tuple[str, str],
    correlation_id: str | None,
    now: int,
    *,
    status: int = DONE,
) -> AuditEntry:
    return AuditEntry(
        operation=operation,
        status=status,
        recorded_at=now,
        resource_type=resource[0],
        resource_id=resource[1],
        origin=command.origin,
        correlation_id=correlation_id,
    )
