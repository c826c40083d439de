"""Reads of budgets: values as of one snapshot and one instant, or a refusal. A read never writes (I8).

Every method refuses ACCESS_DENIED for a missing permission first, then INVALID_INPUT for what cannot be asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from domain.amounts import Unit
from domain.budget.commands import Reserve
from domain.budget.queries import (
    LIMIT_DEFAULT,
    AuditQuery,
    AuditSort,
    BalanceQuery,
    BudgetQuery,
    BudgetSort,
    KeyQuery,
    KeySort,
    KeyStatus,
    PolicyQuery,
    PolicySort,
    ReservationQuery,
    ReservationSort,
    TenantQuery,
    TenantSort,
    Window,
    query_mark,
)
from domain.budget.records import Budget, BudgetReservation, Policy, ReservationStatus
from domain.budget.refusals import BudgetNotFound
from domain.budget.replay import ANSWERS_KEPT_MS
from domain.budget.reservations import expired
from domain.budget.scopes import derive_scopes, scope_filter_allows
from domain.budget.shapes import RESERVATION_ID_MAX, check_length, invalid
from domain.budget.values import Balance, Subject
from domain.outcomes import AccessDenied, InvalidInput, NotFound, Refusal
from storage.budget.audit_log import SeenAuditEntry
from storage.budget.books import read_owners, read_reservations
from storage.budget.operators import Overview, SeenTenant
from storage.budget.pages import (
    BUDGETS,
    POLICIES,
    RESERVATIONS,
    find_reserved,
    get_budget,
    page_balances,
    page_budgets,
    page_policies,
    page_reservations,
)
from storage.database import PooledConnection
from storage.identity import get_tenant
from workers.budget import rights
from workers.budget.event_log import EventLogReads
from workers.budget.listing import (
    TEXT,
    Listing,
    SeenBudget,
    SeenPolicy,
    SeenReservation,
    listing,
    place_of,
    refuse_query,
)
from workers.budget.operator_reads import OperatorReads
from workers.budget.texts import is_kept
from workers.budget.turn import NO_TENANT
from workers.request import Caller

__all__ = [
    "AuditQuery",
    "AuditSort",
    "BudgetQuery",
    "BudgetReads",
    "BudgetSort",
    "KeyQuery",
    "KeySort",
    "KeyStatus",
    "Listing",
    "Overview",
    "PolicyQuery",
    "PolicySort",
    "ReservationQuery",
    "ReservationSort",
    "SeenAuditEntry",
    "SeenBudget",
    "SeenPolicy",
    "SeenReservation",
    "SeenTenant",
    "TenantQuery",
    "TenantSort",
    "Window",
]


class BudgetReads(EventLogReads, OperatorReads):
    """One object a node."""

    # -- reservations ----------------------------------------------------------------------------------------------

    async def reservation(
        self, caller: Caller, *, reservation_id: str, as_admin: bool = False
    ) -> SeenReservation | Refusal:
        """One budget reservation. `as_admin`: root, whosever it is.

        Refuses in this order: ACCESS_DENIED (permission), INVALID_INPUT, NOT_FOUND, ACCESS_DENIED (another tenant's,
        or outside the key's scope filter), RESERVATION_EXPIRED: a list still shows those (section 1.7).
        """
        own = caller.principal.tenant_id
        denied = rights.refuse(caller, rights.LIST_RESERVATIONS, own, as_admin=True) if as_admin else None
        if (denied := denied or (None if as_admin else rights.refuse_looking(caller))) is not None:
            return denied
        refused = _refuse_id(reservation_id)
        if refused is not None:
            return refused
        async with self._snapshot() as (connection, now):
            tenant_id = own
            found = None if as_admin else await read_reservations(connection, [(own, reservation_id)])
            if not found:
                owner = (await read_owners(connection, [reservation_id])).get(reservation_id)
                if owner is None:
                    return NotFound(field="reservation_id", message=f"no such reservation: {reservation_id}")
                if not as_admin:
                    return AccessDenied(message="the reservation belongs to another tenant")
                tenant_id, found = owner, await read_reservations(connection, [(owner, reservation_id)])
        reservation = found[0][1]
        if not as_admin and not scope_filter_allows(caller.principal.scope_filter, reservation.scope_path):
            return AccessDenied(message="the key's scope filter does not cover this scope")
        status = reservation.status_at(now)
        if status is ReservationStatus.EXPIRED:
            return expired(reservation)
        return SeenReservation(tenant_id=tenant_id, reservation=reservation, status=status)

    async def reservations(
        self,
        caller: Caller,
        *,
        query: ReservationQuery,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
        tenant_id: str | None = None,
    ) -> Listing[SeenReservation] | Refusal:
        """Reservations of one tenant, the caller's own unless root names another. A closed tenant's too.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (tenant).
        """
        tenant = tenant_id or caller.principal.tenant_id
        if (denied := rights.refuse(caller, rights.LIST_RESERVATIONS, tenant)) is not None:
            return denied
        if (refused := refuse_query(query, tenant, limit)) is not None:
            return refused
        mark = query_mark("reservations", tenant, query)
        after = place_of(mark, cursor, RESERVATIONS.columns[query.sort_by])
        if isinstance(after, Refusal):
            return after
        async with self._snapshot() as (connection, now):
            if not await _exists(connection, tenant):
                return NO_TENANT
            page = await page_reservations(
                connection,
                tenant,
                query,
                now=now,
                scope_filter=rights.scope_filter_of(caller, tenant),
                after=after,
                limit=limit,
                **await _where_reserved(connection, tenant, query, now),
            )

        def seen(reservation: BudgetReservation) -> SeenReservation:
            return SeenReservation(tenant_id=tenant, reservation=reservation, status=reservation.status_at(now))

        return listing(page, mark, seen)

    # -- budgets -----------------------------------------------------------------------------------------------------

    async def balances(
        self,
        caller: Caller,
        *,
        subject: Subject,
        exact: bool = False,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
        tenant_id: str | None = None,
    ) -> Listing[Balance] | Refusal:
        """Balances of every budget whose path has all of the subject's segments; with `exact` of that very path, which
        begins with the tenant whether or not the subject names it.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, ACCESS_DENIED (another tenant's subject), NOT_FOUND.
        """
        tenant = tenant_id or caller.principal.tenant_id
        if (denied := rights.refuse(caller, rights.READ_BALANCES, tenant)) is not None:
            return denied
        scopes = derive_scopes(replace(subject, tenant=subject.tenant or tenant) if exact else subject)
        if isinstance(scopes, Refusal):
            return scopes
        if subject.tenant and subject.tenant != tenant:
            return AccessDenied(message="the subject's tenant is not the tenant of the key")
        query = BalanceQuery(segments=tuple(scopes[-1].split("/")), exact=exact)
        if (refused := refuse_query(query, tenant, limit)) is not None:
            return refused
        mark = query_mark("balances", tenant, query)
        after = place_of(mark, cursor, TEXT)
        if isinstance(after, Refusal):
            return after
        async with self._snapshot() as (connection, _):
            if not await _exists(connection, tenant):
                return NO_TENANT
            page = await page_balances(
                connection,
                tenant,
                query,
                scope_filter=rights.scope_filter_of(caller, tenant),
                after=after,
                limit=limit,
            )
        return listing(page, mark, Budget.balance)

    async def budget(
        self, caller: Caller, *, scope: str, unit: Unit, tenant_id: str | None = None
    ) -> SeenBudget | Refusal:
        """The budget of a scope and unit.

        Refuses in this order: ACCESS_DENIED (also outside the key's scope filter), INVALID_INPUT, BUDGET_NOT_FOUND.
        """
        tenant, path = tenant_id or caller.principal.tenant_id, scope.lower()
        if (denied := rights.refuse(caller, rights.READ_BUDGETS, tenant)) is not None:
            return denied
        if not is_kept((scope, tenant)):
            return invalid("scope", "no budget can be called so", reason="charset")
        if not scope_filter_allows(rights.scope_filter_of(caller, tenant), path):
            return AccessDenied(message="the key's scope filter does not cover this scope")
        async with self._snapshot() as (connection, _):
            budget = await get_budget(connection, tenant, path, unit)
        if budget is None:
            return BudgetNotFound(scope=path, unit=unit, message=f"{path} has no budget in {unit.value}")
        return SeenBudget(tenant_id=tenant, budget=budget)

    async def budgets(
        self,
        caller: Caller,
        *,
        query: BudgetQuery,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
        tenant_id: str | None = None,
        all_tenants: bool = False,
        right: rights.Right = rights.READ_BUDGETS,
    ) -> Listing[SeenBudget] | Refusal:
        """Budgets of one tenant; `all_tenants`: root, everybody's. `right`: what it takes, where balances are asked for.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (tenant).
        """
        tenant = None if all_tenants else tenant_id or caller.principal.tenant_id
        found = self._begin(
            caller,
            right,
            name="budgets",
            tenant=tenant,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=BUDGETS.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, _):
            if tenant is not None and not await _exists(connection, tenant):
                return NO_TENANT
            scope_filter = () if tenant is None else rights.scope_filter_of(caller, tenant)
            page = await page_budgets(connection, tenant, query, scope_filter=scope_filter, after=after, limit=limit)
        return listing(page, mark, lambda owned: SeenBudget(tenant_id=owned[0], budget=owned[1]))

    async def policy(
        self,
        caller: Caller,
        *,
        policy_id: str,
        tenant_id: str | None = None,
        right: rights.Right = rights.READ_POLICIES,
    ) -> SeenPolicy | Refusal:
        """One policy of the tenant; for root, when it names none, of whichever. `right`: what it takes.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (policy).
        """
        anybodys = tenant_id is None and caller.principal.is_root
        found = await self.policies(
            caller,
            query=PolicyQuery(policy_id=policy_id),
            limit=1,
            tenant_id=tenant_id,
            all_tenants=anybodys,
            right=right,
        )
        if isinstance(found, Refusal):
            return found
        return found.items[0] if found.items else NotFound(field="policy_id", message="no such policy")

    async def policies(
        self,
        caller: Caller,
        *,
        query: PolicyQuery,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
        tenant_id: str | None = None,
        all_tenants: bool = False,
        right: rights.Right = rights.READ_POLICIES,
    ) -> Listing[SeenPolicy] | Refusal:
        """Policies of one tenant; `all_tenants`: root, everybody's. `right`: what it takes.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, NOT_FOUND (tenant).
        """
        tenant = None if all_tenants else tenant_id or caller.principal.tenant_id
        found = self._begin(
            caller,
            right,
            name="policies",
            tenant=tenant,
            query=query,
            limit=limit,
            cursor=cursor,
            columns=POLICIES.columns,
        )
        if isinstance(found, Refusal):
            return found
        mark, after = found
        async with self._snapshot() as (connection, _):
            if tenant is not None and not await _exists(connection, tenant):
                return NO_TENANT
            scope_filter = () if tenant is None else rights.scope_filter_of(caller, tenant)
            page = await page_policies(connection, tenant, query, scope_filter=scope_filter, after=after, limit=limit)
        return listing(page, mark, _seen_policy)


async def _where_reserved(
    connection: PooledConnection, tenant_id: str, query: ReservationQuery, now: int
) -> dict[str, Any]:
    """Where to look for the reservation of an idempotency key. No index has those: the remembered answers do.

    A key that is not remembered is of a reservation from before they were kept, if of any.
    """
    key = query.idempotency_key
    if key is None:
        return {}
    found = await find_reserved(connection, tenant_id, operation=Reserve.operation, key=key)
    return {"created_until": now - ANSWERS_KEPT_MS} if found is None else {"reservation_id": found}


def _seen_policy(owned: tuple[str, Policy]) -> SeenPolicy:
    tenant_id, policy = owned
    return SeenPolicy(tenant_id=tenant_id, policy=policy)


async def _exists(connection: PooledConnection, tenant_id: str) -> bool:
    return await get_tenant(connection, tenant_id) is not None


def _refuse_id(reservation_id: str) -> InvalidInput | None:
    if not is_kept(reservation_id):
        return invalid("reservation_id", "no reservation can be called so", reason="charset")
    return check_length(reservation_id, field="reservation_id", least=1, most=RESERVATION_ID_MAX)
