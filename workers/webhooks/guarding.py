"""What may be written down about a webhook's URL, and the security configuration behind it (8.6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from domain.authority import Permission
from domain.budget.events import AuditEntry
from domain.budget.values import ActorType
from domain.outcomes import AccessDenied, InvalidInput, Refusal
from domain.webhooks.refusals import WebhookUrlInvalid
from domain.webhooks.targets import (
    Security,
    Target,
    parse_url,
    refuse_addresses,
    refuse_security,
    refuse_target,
)
from storage.budget.audit_log import flush_entry
from storage.database import AnyConnection
from storage.webhooks.security import flush_security, read_security
from workers.budget.audit_log import ADMIN_TENANT
from workers.budget.rights import origin_of
from workers.ids import IdSource
from workers.registry import Registrar, refuse_unless_root
from workers.request import Caller
from workers.webhooks.addresses import Resolve

UPDATE_SECURITY: Final = "updateWebhookSecurityConfig"


class Guard:
    """`defaults`: what holds until an operator says otherwise."""

    def __init__(self, registrar: Registrar, ids: IdSource, resolve: Resolve, *, defaults: Security) -> None:
        self._registrar = registrar
        self._ids = ids
        self._resolve = resolve
        self._defaults = defaults

    async def security(self, connection: AnyConnection) -> Security:
        return await read_security(connection) or self._defaults

    async def check_url(self, url: str) -> Target | WebhookUrlInvalid:
        """The target, if deliveries may go there as far as can be told today.

        A name that does not resolve now is no reason to refuse: every delivery looks again.
        """
        target = parse_url(url)
        if isinstance(target, WebhookUrlInvalid):
            return target
        async with self._registrar.reading() as turn:
            security = await self.security(turn.connection)
        if (refused := refuse_target(target, security)) is not None:
            return refused
        try:
            addresses = await self._resolve(target)
        except OSError:
            return target
        return refuse_addresses(addresses, security) or target

    async def current(self, caller: Caller) -> Security | AccessDenied:
        """Root's. Refuses ACCESS_DENIED."""
        if denied := refuse_unless_root(caller, Permission.ADMIN_WEBHOOKS_READ):
            return denied
        async with self._registrar.reading() as turn:
            return await self.security(turn.connection)

    async def replace(self, caller: Caller, security: Security) -> Security | Refusal:
        """For every URL that is written from now on, and for every delivery. Refuses ACCESS_DENIED, INVALID_INPUT."""
        if denied := refuse_unless_root(caller, Permission.ADMIN_WEBHOOKS_WRITE):
            return denied
        refused: InvalidInput | None = refuse_security(security)
        if refused is not None:
            return refused
        own = caller.principal.tenant_id
        async with self._registrar.writing() as turn:
            now = await turn.now()
            await flush_security(turn.connection, security, now=now)
            entry = AuditEntry(
                operation=UPDATE_SECURITY,
                recorded_at=now,
                resource_type="config",
                resource_id="webhook-security",
                origin=replace(origin_of(caller, own), actor_type=ActorType.ADMIN),
            )
            await flush_entry(turn.connection, ADMIN_TENANT, self._ids.new("aud"), entry)
        return security
