"""The desk for grants: shape, then authority, then the reservation's actor (R4..R14, R48..R50, R64)."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.availability import Plan, plan_grant
from domain.capacity.commands import AmendGrant, CreateGrant, EndGrant
from domain.capacity.state import Grant
from domain.capacity.views import GrantView
from domain.identity import (
    ACCOUNT_ID,
    GRANT_ID,
    IDEMPOTENCY_KEY,
    PROJECT_ID,
    RESERVATION_ID,
    TENANT_ID,
    reservation_key,
    split_reservation_key,
)
from domain.outcomes import Accepted, InvalidInput, NotFound, Outcome, Refusal, Replayed
from domain.shapes import Shape, check_integer, check_optional_integer, check_optional_text, check_text
from storage.capacity.books import Wanted, read_heads, read_states, read_surroundings
from storage.capacity.lookups import get_grant, get_key
from workers.capacity.asking import CapacityAsker
from workers.capacity.current import grant_view
from workers.capacity.turn import CREATE_GRANT, Reply
from workers.request import Caller

SLOTS_MAX: Final = 100_000
END_GRANT: Final = "reservationGrants.end"
AMEND_GRANT: Final = "reservationGrants.amend"

_CONTENT: Final = tuple(field.name for field in fields(CreateGrant) if field.name not in ("grant_id", "created_by"))

_NO_GRANT: Final = NotFound(field="grantId", message="no such grant on this account")


class GrantDesk:
    """Create, end and amend grants, and try out what a grant would do."""

    def __init__(self, asker: CapacityAsker) -> None:
        self._asker = asker

    async def create(self, caller: Caller, *, idempotency_key: Any, **given: Any) -> Outcome[GrantView]:
        """Commit slots of a capacity reservation to a tenant for a term; the seed's `create`.

        Takes tenant_id, account_id, reservation_id, grant_tenant_id, project_id, slots, starts_at, ends_at as they came.
        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), then as `decide_create`.
        """
        try:
            tenant_id, command = self._creation(caller, **given)
            check_text(idempotency_key, "idempotencyKey", IDEMPOTENCY_KEY)
            content = _content_of(command)
            provenance = self._asker.provenance(
                caller, owner=tenant_id, operation=CREATE_GRANT, idempotency_key=idempotency_key, content=content
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        key = reservation_key(command.account_id, command.reservation_id)
        return await self._shown(key, await self._asker.ask(key, command, provenance))

    async def end(
        self, caller: Caller, *, tenant_id: Any, account_id: Any, grant_id: Any, idempotency_key: Any = None
    ) -> Outcome[GrantView]:
        """End a grant now, or cancel it before it starts; the seed's `end`.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), NOT_FOUND.
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            check_text(account_id, "accountId", ACCOUNT_ID)
            command = EndGrant(grant_id=check_text(grant_id, "grantId", GRANT_ID))
            provenance = self._asker.provenance(
                caller,
                owner=tenant_id,
                operation=END_GRANT,
                idempotency_key=idempotency_key,
                content={"accountId": account_id, "grantId": grant_id},
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        key = await self._key_on_account(account_id, grant_id)
        return await self._shown(key, await self._asker.ask(key, command, provenance)) if key else _NO_GRANT

    async def amend(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        grant_id: Any,
        expected_version: Any,
        slots: Any = None,
        starts_at: Any = None,
        ends_at: Any = None,
        idempotency_key: Any = None,
    ) -> Outcome[GrantView]:
        """Change slots or term in one decision (F3).

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), then as `decide_amend`.
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            check_text(account_id, "accountId", ACCOUNT_ID)
            command = AmendGrant(
                grant_id=check_text(grant_id, "grantId", GRANT_ID),
                expected_version=check_integer(expected_version, "expectedVersion", least=1),
                slots=check_optional_integer(slots, "slots", least=1, most=SLOTS_MAX),
                starts_at=check_optional_integer(starts_at, "startsAt"),
                ends_at=check_optional_integer(ends_at, "endsAt"),
            )
            provenance = self._asker.provenance(
                caller,
                owner=tenant_id,
                operation=AMEND_GRANT,
                idempotency_key=idempotency_key,
                content={"accountId": account_id, **asdict(command)},
                always=True,
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        if command.slots is None and command.starts_at is None and command.ends_at is None:
            message = "one of slots, startsAt and endsAt must be given"
            return InvalidInput(field="slots", reason="nothing-to-change", message=message)
        key = await self._key_on_account(account_id, grant_id)
        return await self._shown(key, await self._asker.ask(key, command, provenance)) if key else _NO_GRANT

    async def plan(self, caller: Caller, **given: Any) -> Plan | Refusal:
        """What `create` would answer now, and why (F4). Same input without the key, same authority; writes nothing.

        Refuses INVALID_INPUT (shape), ACCESS_DENIED, NOT_FOUND (reservation); every other "no" is in the plan.
        """
        try:
            tenant_id, command = self._creation(caller, **given)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        key = reservation_key(command.account_id, command.reservation_id)
        async with self._asker.database.transaction(isolation="repeatable_read") as connection:
            states = await read_states(connection, await read_heads(connection, [key]))
            if key not in states:
                return NotFound(field="reservationId", message="no such reservation on this account")
            around = await read_surroundings(connection, _wanted(command, states[key].reservation.pool_id))
            now = await self._asker.now(connection)
        return plan_grant(states[key], command, around=around, now=max(now, states[key].reservation.clock_at))

    def _creation(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservation_id: Any,
        grant_tenant_id: Any,
        slots: Any,
        starts_at: Any,
        ends_at: Any,
        project_id: Any = None,
    ) -> tuple[str, CreateGrant]:
        """The tenant acted in, and the command. Raises `Shape`."""
        return check_text(tenant_id, "tenantId", TENANT_ID), CreateGrant(
            grant_id=self._asker.ids.new("rgrant"),
            account_id=check_text(account_id, "accountId", ACCOUNT_ID),
            reservation_id=check_text(reservation_id, "reservationId", RESERVATION_ID),
            grant_tenant_id=check_text(grant_tenant_id, "grantTenantId", TENANT_ID),
            project_id=check_optional_text(project_id, "projectId", PROJECT_ID),
            slots=check_integer(slots, "slots", least=1, most=SLOTS_MAX),
            starts_at=check_integer(starts_at, "startsAt"),
            ends_at=check_integer(ends_at, "endsAt"),
            created_by=caller.principal.key_id,
        )

    async def _key_on_account(self, account_id: str, grant_id: str) -> str | None:
        """R48: a grant of another account is as good as none."""
        async with self._asker.database.acquire() as connection:
            key = await get_key(connection, grant_id)
        return key if key is not None and split_reservation_key(key)[0] == account_id else None

    async def _shown(self, key: str, reply: Reply) -> Outcome[GrantView]:
        match reply.outcome:
            case Accepted(answer=Grant() as grant):
                return Accepted(GrantView(key, grant, reply.now))
            case Replayed(subject_id=grant_id):
                return await self._as_it_is_now(grant_id)
            case Refusal() as refusal:
                return refusal
        raise AssertionError(f"a grant command came to {reply.outcome!r}")

    async def _as_it_is_now(self, grant_id: str) -> Outcome[GrantView]:
        """R5: a retry gets the grant as it is, perhaps ended, not as it was."""
        async with self._asker.database.acquire() as connection:
            found = await get_grant(connection, grant_id)
            instants = await self._asker.instants(connection)
        return Accepted(grant_view(found, instants)) if found else _NO_GRANT


def _content_of(command: CreateGrant) -> dict[str, Any]:
    """What makes two requests the same (R6): neither the id made for it nor who sent it."""
    return {name: getattr(command, name) for name in _CONTENT}


def _wanted(command: CreateGrant, pool_id: str | None) -> Wanted:
    return Wanted(
        tenant_ids={command.grant_tenant_id},
        project_ids={command.project_id} if command.project_id else set(),
        account_ids={command.account_id},
        pool_ids={pool_id} if pool_id else set(),
    )
