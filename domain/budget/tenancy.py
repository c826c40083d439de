"""Whether this tenant and this caller may ask at all, before any balance is looked at (checks 8, 9 and 12 of 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from domain.budget.commands import Command
from domain.budget.records import TenantStatus
from domain.budget.refusals import TenantClosed, TenantSuspended
from domain.budget.scopes import scope_filter_allows
from domain.budget.state import BudgetState
from domain.budget.values import Subject
from domain.outcomes import AccessDenied


class MalformedTenantError(Exception):
    """The stored status of a tenant cannot be understood: nothing is decided for it (section 7). A fault of ours."""


def refuse_subject(state: BudgetState, subject: Subject) -> AccessDenied | None:
    """The subject's tenant, where it is named, must be the caller's, compared exactly as it was sent."""
    if not subject.tenant or subject.tenant == state.tenant.tenant_id:
        return None
    return AccessDenied(message="the subject's tenant is not the tenant of the key")


def refuse_scope(command: Command, scope_path: str) -> AccessDenied | None:
    """A confined key reaches only what its filter names."""
    if not command.scope_filter or scope_filter_allows(command.scope_filter, scope_path):
        return None
    return AccessDenied(message="the key's scope filter does not cover this scope")


def refuse_request(
    state: BudgetState, command: Command, subject: Subject, scopes: Sequence[str]
) -> AccessDenied | None:
    return refuse_subject(state, subject) or refuse_scope(command, scopes[-1])


def refuse_closed(state: BudgetState) -> TenantClosed | None:
    """For what a suspended tenant may still do: settle and release, and be governed."""
    if state.tenant.status is None:
        raise MalformedTenantError(state.tenant.tenant_id)
    if state.tenant.status is TenantStatus.CLOSED:
        return TenantClosed(tenant_id=state.tenant.tenant_id)
    return None


def refuse_inactive(state: BudgetState) -> TenantClosed | TenantSuspended | None:
    """For new work."""
    if (refusal := refuse_closed(state)) is not None:
        return refusal
    if state.tenant.status is TenantStatus.SUSPENDED:
        return TenantSuspended(tenant_id=state.tenant.tenant_id)
    return None
