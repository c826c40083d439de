"""Tenants, projects and API keys."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain import tenancy
from domain.identity import API_KEY_ID, PROJECT_ID, TENANT_ID
from schema.budget.tenants import TenantStanding
from schema.context import operation
from schema.governing import governs
from schema.inputs import ID, INPUT, given, in_own_tenant
from schema.paging import AFTER, FIRST, Connection, connection, one, position_of, settled, take, value
from schema.refusals import answer, result
from schema.scalars import Millis, millis

# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class Tenant:
    """Who grants are made to. One of them, the root tenant, is the platform itself."""

    id: strawberry.ID
    name: str
    is_root: bool
    created_at: Millis
    deleted_at: Millis | None

    @strawberry.field
    async def standing(self) -> TenantStanding | None:
        """What it may do with budgets."""
        tenant = await operation().loaders.standings.load(self.id)
        return None if tenant is None else TenantStanding.of(tenant)

    @classmethod
    def of(cls, tenant: tenancy.Tenant) -> Tenant:
        return cls(
            id=strawberry.ID(tenant.tenant_id),
            name=tenant.name,
            is_root=tenant.is_root,
            created_at=Millis(tenant.created_at),
            deleted_at=millis(tenant.deleted_at),
        )


@strawberry.type
class Project:
    """A part of a tenant. A grant can be restricted to one; every instance belongs to one."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    name: str
    created_at: Millis
    deleted_at: Millis | None

    @classmethod
    def of(cls, project: tenancy.Project) -> Project:
        return cls(
            id=strawberry.ID(project.project_id),
            tenant_id=strawberry.ID(project.tenant_id),
            name=project.name,
            created_at=Millis(project.created_at),
            deleted_at=millis(project.deleted_at),
        )


@strawberry.type
class ApiKey:
    """What may be shown of a key: the public part of its secret, and what it allows."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    name: str
    prefix: str = strawberry.field(description="The public part of the secret.")
    permissions: list[str]
    created_at: Millis
    expires_at: Millis | None
    revoked_at: Millis | None
    last_used_at: Millis | None = strawberry.field(description="To the minute.")

    @classmethod
    def of(cls, key: tenancy.ApiKey) -> ApiKey:
        return cls(
            id=strawberry.ID(key.key_id),
            tenant_id=strawberry.ID(key.tenant_id),
            name=key.name,
            prefix=key.prefix,
            permissions=list(key.permissions),
            created_at=Millis(key.created_at),
            expires_at=millis(key.expires_at),
            revoked_at=millis(key.revoked_at),
            last_used_at=millis(key.last_used_at),
        )


@strawberry.type
class CreatedApiKey:
    """A new key with its secret, which is told this once and kept nowhere."""

    api_key: ApiKey
    secret: str | None = strawberry.field(description="Null when the request is a retry.")

    @classmethod
    def of(cls, issued: tenancy.IssuedKey) -> CreatedApiKey:
        return cls(api_key=ApiKey.of(issued.key), secret=issued.secret)


@strawberry.type
class Viewer:
    """Who the caller is."""

    tenant: Tenant
    api_key: ApiKey

    @classmethod
    def of(cls, viewer: tenancy.Viewer) -> Viewer:
        return cls(tenant=Tenant.of(viewer.tenant), api_key=ApiKey.of(viewer.key))


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class CreateTenantInput:
    """The id is chosen by the caller and never used twice."""

    tenant_id: strawberry.ID
    name: str
    idempotency_key: str | None = None


@strawberry.input
class DeleteTenantInput:
    """Its keys are revoked, its active grants end and its scheduled ones are cancelled."""

    tenant_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class CreateProjectInput:
    """A project of a tenant; without one named, of the caller's own."""

    tenant_id: strawberry.ID | None = None
    name: str
    idempotency_key: str | None = None


@strawberry.input
class DeleteProjectInput:
    """Grants that are restricted to it stay, and serve nobody."""

    project_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class CreateApiKeyInput:
    """A key of a tenant; without one named, of the caller's own."""

    tenant_id: strawberry.ID | None = None
    name: str
    permissions: list[str] | None = strawberry.field(
        default=None, description="What it allows; without a list, what a tenant's key usually does."
    )
    expires_at: Millis | None = None
    idempotency_key: str | None = None


@strawberry.input
class RevokeApiKeyInput:
    """The key stops working on every node within a second, and its subscriptions end."""

    key_id: strawberry.ID
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

CreateTenantResult = result("CreateTenantResult", Tenant)
DeleteTenantResult = result("DeleteTenantResult", Tenant)
CreateProjectResult = result("CreateProjectResult", Project)
DeleteProjectResult = result("DeleteProjectResult", Project)
CreateApiKeyResult = result("CreateApiKeyResult", CreatedApiKey)
RevokeApiKeyResult = result("RevokeApiKeyResult", ApiKey)


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class TenancyQuery:
    @strawberry.field
    async def viewer(self) -> Viewer:
        """Who the caller is: any valid key may ask."""
        current = operation()
        found = settled(await current.runtime.keys.viewer(current.caller))
        return Viewer.of(value(found))

    @strawberry.field
    async def tenant(self, tenant_id: Annotated[strawberry.ID, ID]) -> Tenant | None:
        """Root sees every tenant, a tenant itself."""
        current = operation()
        found = settled(await current.runtime.tenancy.get_tenant(current.caller, tenant_id=tenant_id))
        return one(found, Tenant.of, tenantId="id")

    @strawberry.field
    async def tenants(
        self,
        *,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
        include_deleted: bool = False,
    ) -> Connection[Tenant] | None:
        """All tenants for root, itself for a tenant; newest first."""
        current = operation()
        page = settled(
            await current.runtime.tenancy.page_tenants(
                current.caller,
                first=take(first),
                after=position_of(after, ids=TENANT_ID),
                include_deleted=include_deleted,
            )
        )
        return connection(value(page), Tenant.of, after=after)

    @strawberry.field
    async def project(self, project_id: Annotated[strawberry.ID, ID]) -> Project | None:
        """A project of the caller's tenant; for root, any."""
        current = operation()
        found = settled(await current.runtime.tenancy.get_project(current.caller, project_id=project_id))
        return one(found, Project.of, projectId="id")

    @strawberry.field
    async def projects(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
        include_deleted: bool = False,
    ) -> Connection[Project] | None:
        """Projects of one tenant, by default the caller's own, newest first. Null for a tenant that cannot be seen."""
        current = operation()
        page = settled(
            await current.runtime.tenancy.page_projects(
                current.caller,
                tenant_id=tenant_id,
                first=take(first),
                after=position_of(after, ids=PROJECT_ID),
                include_deleted=include_deleted,
            )
        )
        return one(page, lambda items: connection(items, Project.of, after=after))

    @strawberry.field
    async def api_key(self, key_id: Annotated[strawberry.ID, ID]) -> ApiKey | None:
        """A key of the caller's tenant; for root, any."""
        current = operation()
        found = settled(await current.runtime.keys.get_api_key(current.caller, key_id=key_id))
        return one(found, ApiKey.of, keyId="id")

    @strawberry.field
    async def api_keys(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
        include_revoked: bool = False,
    ) -> Connection[ApiKey] | None:
        """Keys of one tenant, by default the caller's own, newest first. Null for a tenant that cannot be seen."""
        current = operation()
        page = settled(
            await current.runtime.keys.page_api_keys(
                current.caller,
                tenant_id=tenant_id,
                first=take(first),
                after=position_of(after, ids=API_KEY_ID),
                include_revoked=include_revoked,
            )
        )
        return one(page, lambda items: connection(items, ApiKey.of, after=after))


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class TenancyMutation:
    @governs(CreateTenantResult, "tenant")
    async def create_tenant(self, wanted: Annotated[CreateTenantInput, INPUT]) -> Any:
        """Root only."""
        current = operation()
        return answer(await current.runtime.tenancy.create_tenant(current.caller, **given(wanted)), Tenant.of)

    @governs(DeleteTenantResult, "tenant")
    async def delete_tenant(self, wanted: Annotated[DeleteTenantInput, INPUT]) -> Any:
        """Root only. Deleting twice is no error."""
        current = operation()
        return answer(await current.runtime.tenancy.delete_tenant(current.caller, **given(wanted)), Tenant.of)

    @governs(CreateProjectResult, "project")
    async def create_project(self, wanted: Annotated[CreateProjectInput, INPUT]) -> Any:
        """For the members of the tenant and root's."""
        current = operation()
        return answer(await current.runtime.tenancy.create_project(current.caller, **in_own_tenant(wanted)), Project.of)

    @governs(DeleteProjectResult, "project")
    async def delete_project(self, wanted: Annotated[DeleteProjectInput, INPUT]) -> Any:
        """For the members of its tenant and root's. Deleting twice is no error."""
        current = operation()
        return answer(await current.runtime.tenancy.delete_project(current.caller, **given(wanted)), Project.of)

    @governs(CreateApiKeyResult, "api_key")
    async def create_api_key(self, wanted: Annotated[CreateApiKeyInput, INPUT]) -> Any:
        """For the members of the tenant and root's. Nobody can give away a permission that they lack."""
        current = operation()
        return answer(
            await current.runtime.keys.create_api_key(current.caller, **in_own_tenant(wanted)), CreatedApiKey.of
        )

    @governs(RevokeApiKeyResult, "api_key")
    async def revoke_api_key(self, wanted: Annotated[RevokeApiKeyInput, INPUT]) -> Any:
        """For the members of its tenant and root's. Revoking twice is no error."""
        current = operation()
        return answer(await current.runtime.keys.revoke_api_key(current.caller, **given(wanted)), ApiKey.of)
