"""The desk for tenants and their projects: shape, then authority, then one transaction of the registry.

Every mutation takes an optional idempotency key; a retry gets the thing as it is now. Root's members, acting in the
root tenant, manage every tenant; a tenant's members their own projects. Keys have a desk of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from domain.authority import Permission
from domain.budget.events import CREATED
from domain.identity import PROJECT_ID, TENANT_ID
from domain.outcomes import Accepted, Outcome
from domain.paging import LIST_MAX, check_first
from domain.shapes import Shape, check_name, check_text
from domain.tenancy import (
    NO_PROJECT,
    NO_TENANT,
    Project,
    Tenant,
    check_new_tenant_id,
    decide_delete_project,
    decide_delete_tenant,
    is_visible,
    refuse_new_tenant,
    refuse_tenant,
)
from storage import identity
from storage.paging import Page, Position
from workers.announcing import ACTIVE, CLOSED, TENANT_CLOSED, TENANT_CREATED, Announcer
from workers.ids import IdSource
from workers.recording import record
from workers.registry import (
    Registrar,
    Turn,
    check_owner,
    refuse_invisible,
    refuse_manager,
    refuse_reader,
    refuse_unless_root,
)
from workers.request import Caller

log = logging.getLogger("earmark.tenancy")

CREATE_TENANT: Final = "tenants.create"
DELETE_TENANT: Final = "tenants.delete"
CREATE_PROJECT: Final = "projects.create"
DELETE_PROJECT: Final = "projects.delete"

CLOSING_MAX: Final = 100
"""Tenants read at a time by the job that finishes deletions."""


class TenancyDesk:
    """`close_tenant` asks every capacity reservation to let go of a tenant that was marked deleted."""

    def __init__(self, registrar: Registrar, ids: IdSource, *, close_tenant: Callable[[str], Awaitable[None]]) -> None:
        self._registrar = registrar
        self._ids = ids
        self._close_tenant = close_tenant
        self._announcer = Announcer(ids)

    # -- tenants ---------------------------------------------------------------------------------------------------

    async def create_tenant(
        self, caller: Caller, *, tenant_id: Any, name: Any, idempotency_key: Any = None
    ) -> Outcome[Tenant]:
        """Root makes a tenant; its id is chosen by the caller and never used twice.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), CONFLICT `tenant-exists`.
        """
        try:
            wanted = check_new_tenant_id(tenant_id, "tenantId")
            title = check_name(name, "name")
            content = {"tenantId": wanted, "name": title}
            request = self._registrar.request(caller, CREATE_TENANT, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.TENANCY_MANAGE):
            return denied

        async def decide(turn: Turn) -> Outcome[Tenant]:
            if refusal := refuse_new_tenant(await identity.get_tenant(turn.connection, wanted)):
                return refusal
            tenant = Tenant(tenant_id=wanted, name=title, is_root=False, created_at=await turn.now())
            await identity.flush_tenant(turn.connection, tenant)
            await self._tell(turn, caller, TENANT_CREATED, {"tenant_id": wanted, "new_status": ACTIVE})
            await self._record(turn, caller, "createTenant", wanted, now=tenant.created_at, status=CREATED)
            return Accepted(tenant)

        return await self._registrar.write(
            request, decide, subject=lambda tenant: tenant.tenant_id, again=identity.get_tenant
        )

    async def delete_tenant(self, caller: Caller, *, tenant_id: Any, idempotency_key: Any = None) -> Outcome[Tenant]:
        """Root deletes a tenant: its keys are revoked at once, then every capacity reservation lets go of it (R53).

        When this answers, all of that is done. If it is interrupted, `finish_closing` or a second call does the rest.
        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), NOT_FOUND, INVALID_STATE (root).
        """
        try:
            wanted = check_text(tenant_id, "tenantId", TENANT_ID)
            request = self._registrar.request(
                caller, DELETE_TENANT, idempotency_key=idempotency_key, content={"tenantId": wanted}
            )
        except Shape as shape:
            return shape.refusal
        if denied := refuse_unless_root(caller, Permission.TENANCY_MANAGE):
            return denied

        async def decide(turn: Turn) -> Outcome[Tenant]:
            tenant = await identity.lock_tenant(turn.connection, wanted)
            now = await turn.now()
            outcome = decide_delete_tenant(tenant, now=now)
            if isinstance(outcome, Accepted):
                if outcome.answer != tenant:
                    is_closed = await identity.is_closed_for_budgets(turn.connection, wanted)
                    await identity.flush_tenant_deleted(turn.connection, wanted, deleted_at=now)
                    if not is_closed:  # that closing has been told of
                        facts = {"tenant_id": wanted, "previous_status": ACTIVE, "new_status": CLOSED}
                        await self._tell(turn, caller, TENANT_CLOSED, facts | {"changed_fields": ["status"]})
                await self._record(turn, caller, "deleteTenant", wanted, now=now)
            return outcome

        outcome = await self._registrar.write(
            request, decide, subject=lambda tenant: tenant.tenant_id, again=identity.get_tenant, changes_keys=True
        )
        if isinstance(outcome, Accepted) and outcome.answer.is_closing:
            return Accepted(await self._close(outcome.answer))
        return outcome

    async def finish_closing(self) -> int:
        """A job: finish deletions that were interrupted. How many were. Harmless beside one that is under way."""
        finished, after = 0, ""
        while True:
            async with self._registrar.reading() as turn:
                closing = await identity.read_closing_tenants(turn.connection, after=after, limit=CLOSING_MAX)
            if not closing:
                return finished
            for tenant in closing:
                try:
                    await self._close(tenant)
                    finished += 1
                except Exception:  # one tenant in trouble must not keep the others
                    log.exception("tenant %s could not be closed yet", tenant.tenant_id)
            after = closing[-1].tenant_id

    async def get_tenant(self, caller: Caller, *, tenant_id: Any) -> Outcome[Tenant]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another's too)."""
        try:
            wanted = check_text(tenant_id, "tenantId", TENANT_ID)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller):
            return denied
        async with self._registrar.reading() as turn:
            tenant = await identity.get_tenant(turn.connection, wanted)
        if tenant is None or not is_visible(caller.principal, wanted):
            return NO_TENANT
        return Accepted(tenant)

    async def page_tenants(
        self, caller: Caller, *, first: Any = None, after: Position | None = None, include_deleted: bool = False
    ) -> Outcome[Page[Tenant]]:
        """Root sees all tenants, a tenant itself. Refuses in this order: INVALID_INPUT, ACCESS_DENIED."""
        try:
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller):
            return denied
        async with self._registrar.reading() as turn:
            if caller.principal.is_root:
                page = await identity.page_tenants(
                    turn.connection, first=count, after=after, include_deleted=include_deleted
                )
                return Accepted(page)
            own = await identity.get_tenant(turn.connection, caller.principal.tenant_id)
        return Accepted(_page_of_one(own, first=count, after=after))

    # -- projects --------------------------------------------------------------------------------------------------

    async def create_project(
        self, caller: Caller, *, tenant_id: Any, name: Any, idempotency_key: Any = None
    ) -> Outcome[Project]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), NOT_FOUND, INVALID_STATE (deleted)."""
        try:
            owner = check_text(tenant_id, "tenantId", TENANT_ID)
            title = check_name(name, "name")
            content = {"tenantId": owner, "name": title}
            request = self._registrar.request(caller, CREATE_PROJECT, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_for(Permission.TENANCY_MANAGE, tenant_id=owner):
            return denied
        project_id = self._ids.new("prj")

        async def decide(turn: Turn) -> Outcome[Project]:
            tenants = await identity.lock_tenants_shared(turn.connection, [owner])
            if refusal := refuse_tenant(tenants.get(owner)):
                return refusal
            now = await turn.now()
            project = Project(project_id=project_id, tenant_id=owner, name=title, created_at=now)
            await identity.flush_project(turn.connection, project)
            await self._record_project(turn, caller, "createProject", project, now=now, status=CREATED)
            return Accepted(project)

        return await self._registrar.write(
            request, decide, subject=lambda project: project.project_id, again=identity.get_project
        )

    async def delete_project(self, caller: Caller, *, project_id: Any, idempotency_key: Any = None) -> Outcome[Project]:
        """Its grants stay and bill (D30). Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key),
        NOT_FOUND (another's too)."""
        try:
            wanted = check_text(project_id, "projectId", PROJECT_ID)
            request = self._registrar.request(
                caller, DELETE_PROJECT, idempotency_key=idempotency_key, content={"projectId": wanted}
            )
        except Shape as shape:
            return shape.refusal
        if denied := refuse_manager(caller):
            return denied

        async def decide(turn: Turn) -> Outcome[Project]:
            project = await identity.lock_project(turn.connection, wanted)
            if project is None or not is_visible(caller.principal, project.tenant_id):
                return NO_PROJECT
            now = await turn.now()
            outcome = decide_delete_project(project, now=now)
            if isinstance(outcome, Accepted) and outcome.answer != project:
                await identity.flush_project_deleted(turn.connection, wanted, deleted_at=now)
                await self._record_project(turn, caller, "deleteProject", project, now=now)
            return outcome

        return await self._registrar.write(
            request, decide, subject=lambda project: project.project_id, again=identity.get_project
        )

    async def get_project(self, caller: Caller, *, project_id: Any) -> Outcome[Project]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another's too)."""
        try:
            wanted = check_text(project_id, "projectId", PROJECT_ID)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller):
            return denied
        async with self._registrar.reading() as turn:
            project = await identity.get_project(turn.connection, wanted)
        if project is None or not is_visible(caller.principal, project.tenant_id):
            return NO_PROJECT
        return Accepted(project)

    async def page_projects(
        self,
        caller: Caller,
        *,
        tenant_id: Any = None,
        first: Any = None,
        after: Position | None = None,
        include_deleted: bool = False,
    ) -> Outcome[Page[Project]]:
        """Projects of one tenant; None: the caller's own.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another tenant's too).
        """
        try:
            owner = check_owner(caller, tenant_id)
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller):
            return denied
        async with self._registrar.reading() as turn:
            if refusal := await refuse_invisible(turn, caller, owner):
                return refusal
            page = await identity.page_projects(
                turn.connection, owner, first=count, after=after, include_deleted=include_deleted
            )
        return Accepted(page)

    async def _tell(self, turn: Turn, caller: Caller, kind: str, facts: Mapping[str, Any]) -> None:
        await self._announcer.tell(
            turn.connection, kind, tenant_id=facts["tenant_id"], data=facts, now=await turn.now(), caller=caller
        )

    async def _record(self, turn: Turn, caller: Caller, operation: str, tenant_id: str, **told: Any) -> None:
        resource = ("tenant", tenant_id)
        await record(turn, self._ids, caller, operation=operation, tenant_id=tenant_id, resource=resource, **told)

    async def _record_project(self, turn: Turn, caller: Caller, operation: str, project: Project, **told: Any) -> None:
        resource, metadata = ("project", project.project_id), {"name": project.name}
        given = {"tenant_id": project.tenant_id, "resource": resource, "metadata": metadata, **told}
        await record(turn, self._ids, caller, operation=operation, **given)

    # -- closing ---------------------------------------------------------------------------------------------------

    async def _close(self, tenant: Tenant) -> Tenant:
        """Let every capacity reservation go of the tenant, then write that down. Harmless when done twice."""
        await self._close_tenant(tenant.tenant_id)
        async with self._registrar.writing() as turn:
            await identity.flush_tenant_closed(turn.connection, tenant.tenant_id, closed_at=await turn.now())
            return await identity.get_tenant(turn.connection, tenant.tenant_id) or tenant


def _page_of_one(tenant: Tenant | None, *, first: int, after: Position | None) -> Page[Tenant]:
    """The list of tenants as one of them sees it."""
    if tenant is None or (after is not None and (tenant.created_at, tenant.tenant_id) >= (after.created_at, after.id)):
        return Page()
    if first == 0:
        return Page(has_more=True)
    return Page(items=(tenant,), positions=(Position(tenant.created_at, tenant.tenant_id),))
