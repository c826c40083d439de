"""The desk for API keys: shape, then authority, then one transaction of the registry. And who the caller is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from domain.authority import Permission
from domain.budget.events import CREATED
from domain.credentials import present
from domain.identity import API_KEY_ID, TENANT_ID, grammar
from domain.outcomes import Accepted, AccessDenied, InvalidState, Outcome
from domain.paging import LIST_MAX, check_first
from domain.shapes import Shape, check_name, check_optional_integer, check_optional_text, check_text
from domain.tenancy import (
    KEY_REVOKED,
    NO_KEY,
    ApiKey,
    IssuedKey,
    Viewer,
    check_key_name,
    check_permissions,
    check_scope_filter,
    decide_revoke_key,
    decide_update_key,
    is_visible,
    refuse_expiry,
    refuse_permissions,
    refuse_tenant,
)
from storage import identity
from storage.database import AnyConnection
from storage.key_ends import claim_expired_keys
from storage.paging import Page, Position
from workers.announcing import (
    ACTIVE,
    API_KEY_CREATED,
    API_KEY_EXPIRED,
    API_KEY_PERMISSIONS_CHANGED,
    API_KEY_REVOKED,
    EXPIRED,
    REVOKED,
    Announcer,
    key_facts,
)
from workers.authority import new_secret
from workers.ids import IdSource
from workers.recording import record
from workers.registry import (
    Registrar,
    Turn,
    check_owner,
    refuse_invisible,
)
from workers.request import Caller

CREATE_KEY: Final = "apiKeys.create"
UPDATE_KEY: Final = "apiKeys.update"
REVOKE_KEY: Final = "apiKeys.revoke"

DESCRIPTION_MAX: Final = 1_024
REASON_MAX: Final = 512
_REASON: Final = grammar(rf"[^\0\ud800-\udfff]{{1,{REASON_MAX}}}", f"1 to {REASON_MAX} characters of text")
OPERATORS_WORDS: Final = {
    Permission.TENANCY_READ: Permission.ADMIN_KEYS_READ,
    Permission.TENANCY_MANAGE: Permission.ADMIN_KEYS_WRITE,
}
"""What a member of the root tenant may hold instead: the Cycles protocol has words of its own for keys alone."""
EXPIRED_MAX: Final = 100
"""Expired keys that one transaction tells of."""
STATUS_AFTER: Final = {API_KEY_REVOKED: REVOKED, API_KEY_EXPIRED: EXPIRED}
CLOSED: Final = InvalidState(state="closed", message="the tenant has been closed")
"""Closing a tenant for budgets revokes its keys and lets nobody make another one."""


class KeyDesk:
    """A tenant's members manage its keys, root's members everybody's."""

    def __init__(self, registrar: Registrar, ids: IdSource) -> None:
        self._registrar = registrar
        self._ids = ids
        self._announcer = Announcer(ids)

    async def viewer(self, caller: Caller) -> Outcome[Viewer]:
        """Who the caller is: any valid key may ask."""
        async with self._registrar.reading() as turn:
            tenant = await identity.get_tenant(turn.connection, caller.principal.tenant_id)
            key = await identity.get_api_key(turn.connection, caller.principal.key_id)
        if tenant is None or key is None:
            return NO_KEY
        return Accepted(Viewer(tenant=tenant, key=key))

    async def create_api_key(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        name: Any,
        permissions: Any = None,
        expires_at: Any = None,
        scope_filter: Any = None,
        description: Any = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: Any = None,
    ) -> Outcome[IssuedKey]:
        """A new key and, this once, its secret; a retry gets the key without it. `permissions` None: the default.

        `scope_filter` confines it to some of the tenant's budgets. Refuses in this order: INVALID_INPUT (shape),
        ACCESS_DENIED (also for a permission or a reach that the caller lacks), CONFLICT (key), NOT_FOUND, INVALID_STATE
        (deleted, or closed for budgets), INVALID_INPUT `in-the-past`.
        """
        try:
            owner = check_text(tenant_id, "tenantId", TENANT_ID)
            title = check_key_name(check_name(name, "name"), "name")
            allowed = check_permissions(permissions, "permissions")
            expiry = check_optional_integer(expires_at, "expiresAt")
            confined = check_scope_filter(scope_filter, "scopeFilter")
            described = None if description is None else check_name(description, "description", longest=DESCRIPTION_MAX)
            content: dict[str, Any] = {"tenantId": owner, "name": title, "permissions": allowed, "expiresAt": expiry}
            content |= {"scopeFilter": confined or None, "description": described, "metadata": metadata}
            request = self._registrar.request(caller, CREATE_KEY, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := _refuse(caller, Permission.TENANCY_MANAGE, tenant_id=owner):
            return denied
        if denied := refuse_permissions(caller.principal, allowed, tenant_id=owner, scope_filter=confined):
            return denied
        asked = ApiKey(
            key_id=self._ids.new("key"),
            tenant_id=owner,
            name=title,
            prefix="",
            permissions=allowed,
            created_at=0,
            expires_at=expiry,
            scope_filter=confined,
            description=described,
            metadata=metadata,
        )

        async def decide(turn: Turn) -> Outcome[IssuedKey]:
            tenants = await identity.lock_tenants_shared(turn.connection, [owner])
            now = await turn.now()
            if refusal := refuse_tenant(tenants.get(owner)) or refuse_expiry(expiry, now=now):
                return refusal
            if await identity.is_closed_for_budgets(turn.connection, owner):
                return CLOSED
            issued = await _issue(turn, asked, now=now)
            await self._tell(turn, caller, API_KEY_CREATED, issued.key)
            told = {"name": title, "permissions": list(allowed)}
            await self._record(turn, caller, "createApiKey", asked, now=now, status=CREATED, metadata=told)
            return Accepted(issued)

        return await self._registrar.write(
            request, decide, subject=lambda issued: issued.key.key_id, again=_issued_before
        )

    async def update_api_key(
        self,
        caller: Caller,
        *,
        key_id: Any,
        name: Any = None,
        permissions: Any = None,
        scope_filter: Any = None,
        description: Any = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: Any = None,
    ) -> Outcome[ApiKey]:
        """Change what a key may and how it is called; what is None stays, an empty scope filter lifts it.

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), NOT_FOUND (another tenant's too),
        ACCESS_DENIED (a permission or a reach that the caller lacks), INVALID_STATE (closed for budgets, revoked, over).
        """
        try:
            wanted = check_text(key_id, "keyId", API_KEY_ID)
            given: dict[str, Any] = {
                "name": None if name is None else check_key_name(check_name(name, "name"), "name"),
                "permissions": None if permissions is None else check_permissions(permissions, "permissions"),
                "scope_filter": None if scope_filter is None else check_scope_filter(scope_filter, "scopeFilter"),
                "description": None
                if description is None
                else check_name(description, "description", longest=DESCRIPTION_MAX),
                "metadata": metadata,
            }
            content = {"keyId": wanted, **given}
            request = self._registrar.request(caller, UPDATE_KEY, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := _refuse(caller, Permission.TENANCY_MANAGE):
            return denied
        changes = {field: value for field, value in given.items() if value is not None}

        async def decide(turn: Turn) -> Outcome[ApiKey]:
            key = await identity.lock_api_key(turn.connection, wanted)
            if key is None or not is_visible(caller.principal, key.tenant_id):
                return NO_KEY
            changed, now = replace(key, **changes), await turn.now()
            outcome = decide_update_key(caller.principal, key, changed, now=now)
            if not isinstance(outcome, AccessDenied) and await _is_closed(turn, key):
                return CLOSED
            if isinstance(outcome, Accepted):
                await self._change(turn, caller, key, changed, now=now)
            return outcome

        return await self._registrar.write(
            request, decide, subject=lambda key: key.key_id, again=identity.get_api_key, changes_keys=True
        )

    async def revoke_api_key(
        self, caller: Caller, *, key_id: Any, reason: Any = None, once: bool = False, idempotency_key: Any = None
    ) -> Outcome[ApiKey]:
        """The key stops to be accepted, on every node within a second; its open streams end.

        `once`: that it was revoked before is refused, not repeated. Refuses in this order: INVALID_INPUT, ACCESS_DENIED,
        CONFLICT (key), NOT_FOUND (another tenant's too), and with `once` INVALID_STATE (closed for budgets, revoked).
        """
        try:
            wanted = check_text(key_id, "keyId", API_KEY_ID)
            why = check_optional_text(reason, "reason", _REASON)
            content = {"keyId": wanted} if why is None else {"keyId": wanted, "reason": why}
            request = self._registrar.request(caller, REVOKE_KEY, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := _refuse(caller, Permission.TENANCY_MANAGE):
            return denied

        async def decide(turn: Turn) -> Outcome[ApiKey]:
            key = await identity.lock_api_key(turn.connection, wanted)
            if key is None or not is_visible(caller.principal, key.tenant_id):
                return NO_KEY
            if once and await _is_closed(turn, key):
                return CLOSED
            if once and key.revoked_at is not None:
                return KEY_REVOKED
            now = await turn.now()
            outcome = decide_revoke_key(key, now=now, reason=why)
            if isinstance(outcome, Accepted):
                if outcome.answer != key:
                    await identity.flush_api_key_revoked(turn.connection, wanted, revoked_at=now, reason=why)
                    await self._tell(turn, caller, API_KEY_REVOKED, outcome.answer, previous_status=ACTIVE)
                told = {"name": key.name}
                await self._record(turn, caller, "revokeApiKey", key, now=now, reason=why, metadata=told)
            return outcome

        return await self._registrar.write(
            request, decide, subject=lambda key: key.key_id, again=identity.get_api_key, changes_keys=True
        )

    async def get_api_key(self, caller: Caller, *, key_id: Any) -> Outcome[ApiKey]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another tenant's too)."""
        try:
            wanted = check_text(key_id, "keyId", API_KEY_ID)
        except Shape as shape:
            return shape.refusal
        if denied := _refuse(caller, Permission.TENANCY_READ):
            return denied
        async with self._registrar.reading() as turn:
            key = await identity.get_api_key(turn.connection, wanted)
        if key is None or not is_visible(caller.principal, key.tenant_id):
            return NO_KEY
        return Accepted(key)

    async def page_api_keys(
        self,
        caller: Caller,
        *,
        tenant_id: Any = None,
        first: Any = None,
        after: Position | None = None,
        include_revoked: bool = False,
    ) -> Outcome[Page[ApiKey]]:
        """Keys of one tenant; None: the caller's own.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another tenant's too).
        """
        try:
            owner = check_owner(caller, tenant_id)
            count = check_first(first, most=LIST_MAX)
        except Shape as shape:
            return shape.refusal
        if denied := _refuse(caller, Permission.TENANCY_READ):
            return denied
        async with self._registrar.reading() as turn:
            if refusal := await refuse_invisible(turn, caller, owner):
                return refusal
            page = await identity.page_api_keys(
                turn.connection, owner, first=count, after=after, include_revoked=include_revoked
            )
        return Accepted(page)

    async def tell_of_expired_keys(self) -> int:
        """A job: one `api_key.expired` for each key whose time is over; how many. Two nodes at once tell once."""
        told = 0
        while True:
            async with self._registrar.writing() as turn:
                keys = await claim_expired_keys(turn.connection, now=await turn.now(), limit=EXPIRED_MAX)
                for key in keys:
                    if key.revoked_at is None:
                        await self._tell(turn, None, API_KEY_EXPIRED, key, previous_status=ACTIVE)
                        told += 1
            if len(keys) < EXPIRED_MAX:
                return told

    async def _tell(
        self, turn: Turn, caller: Caller | None, kind: str, key: ApiKey, *, previous_status: str | None = None
    ) -> None:
        await self._announcer.tell(
            turn.connection,
            kind,
            tenant_id=key.tenant_id,
            data=key_facts(key, new_status=STATUS_AFTER.get(kind, ACTIVE), previous_status=previous_status),
            now=await turn.now(),
            caller=caller,
        )

    async def _change(self, turn: Turn, caller: Caller, key: ApiKey, changed: ApiKey, *, now: int) -> None:
        """Write down what is different, and that it was asked for."""
        if changed != key:
            await identity.flush_api_key_changed(turn.connection, changed)
        if (changed.permissions, changed.scope_filter) != (key.permissions, key.scope_filter):
            await self._tell(turn, caller, API_KEY_PERMISSIONS_CHANGED, changed, previous_status=ACTIVE)
        names = [field.name for field in fields(key)]
        told = {
            "name": key.name,
            "changed_fields": [name for name in names if getattr(changed, name) != getattr(key, name)],
        }
        await self._record(turn, caller, "updateApiKey", key, now=now, metadata=told)

    async def _record(self, turn: Turn, caller: Caller, operation: str, key: ApiKey, **told: Any) -> None:
        await record(
            turn,
            self._ids,
            caller,
            operation=operation,
            tenant_id=key.tenant_id,
            resource=("api_key", key.key_id),
            **told,
        )


def _refuse(caller: Caller, permission: Permission, *, tenant_id: str | None = None) -> AccessDenied | None:
    """Answered before any look-up (R4). `tenant_id` None: the thing itself says whose it is, which is looked at after."""
    principal = caller.principal
    if principal.is_root and principal.may(OPERATORS_WORDS[permission]):
        return None
    return principal.refuse_for(permission, tenant_id=tenant_id or principal.tenant_id)


async def _is_closed(turn: Turn, key: ApiKey) -> bool:
    """Whatever happens to a key of a closed tenant, it is the tenant that says no (section 7 of the budget rules)."""
    return await identity.is_closed_for_budgets(turn.connection, key.tenant_id)


async def _issue(turn: Turn, asked: ApiKey, *, now: int) -> IssuedKey:
    """Give the key its secret and write it down. A prefix that is taken makes the transaction begin anew."""
    secret = new_secret()
    presented = present(secret)
    assert presented is not None, "our own secrets are well-formed"
    key = replace(asked, prefix=presented.prefix, created_at=now)
    await identity.flush_api_key(turn.connection, key, digest=presented.digest)
    return IssuedKey(key=key, secret=secret)


async def _issued_before(connection: AnyConnection, key_id: str) -> IssuedKey | None:
    key = await identity.get_api_key(connection, key_id)
    return IssuedKey(key=key, secret=None) if key else None
