"""The desk for instances: where one is placed, started, stopped, deleted, attached, of which project (R25, D32, D14, D39)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.commands import (
    AttachInstance,
    CapacityCommand,
    ChangeProject,
    DeleteInstance,
    PlaceInstance,
    StartInstance,
    StopInstance,
)
from domain.capacity.placement import NO_SLOT
from domain.capacity.state import Billing, Instance
from domain.capacity.views import InstanceView
from domain.identity import (
    ACCOUNT_ID,
    FLAVOR,
    INSTANCE_ID,
    POOL_ID,
    PROJECT_ID,
    RESERVATION_ID,
    TENANT_ID,
    reservation_key,
)
from domain.outcomes import Accepted, InvalidInput, NotFound, Outcome, Refusal, Replayed
from domain.shapes import Shape, check_boolean, check_name, check_optional_text, check_text
from storage.capacity.lookups import Candidate, find_candidates, get_instance
from workers.capacity.asking import CapacityAsker, recall
from workers.capacity.starting import Found, InstanceAsker, attempts_of
from workers.capacity.turn import Reply
from workers.request import Caller, Provenance
from workers.turns import TurnResult

CREATE_INSTANCE: Final = "instances.create"
ATTACH_INSTANCE: Final = "instances.attach"
START_INSTANCE: Final = "instances.start"
STOP_INSTANCE: Final = "instances.stop"
DELETE_INSTANCE: Final = "instances.delete"
CHANGE_PROJECT: Final = "instances.changeProject"

_NO_INSTANCE: Final = NotFound(field="instanceId", message="no such instance")


class InstanceDesk:
    """Every method acts in `tenant_id`: the caller's own tenant; root acting in the root tenant reaches any instance."""

    def __init__(self, asker: CapacityAsker, committed: Callable[[TurnResult], None]) -> None:
        self._asker = asker
        self._of_instances = InstanceAsker(asker, committed)

    async def create(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        project_id: Any,
        flavor: Any,
        name: Any,
        pool_id: Any = None,
        idempotency_key: Any = None,
    ) -> Outcome[InstanceView]:
        """Run a new instance of a flavor on a reservation that is offered to the tenant (R25, D32).

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), INVALID_INPUT (flavor not offered,
        project), CAPACITY_UNAVAILABLE.
        """
        try:
            check_text(flavor, "flavor", FLAVOR)
            check_optional_text(pool_id, "poolId", POOL_ID)
            command = PlaceInstance(
                instance_id=self._asker.ids.new("inst"),
                tenant_id=check_text(tenant_id, "tenantId", TENANT_ID),
                project_id=check_text(project_id, "projectId", PROJECT_ID),
                name=check_name(name, "name"),
                wanted_pool_id=pool_id,
            )
            content = {"projectId": project_id, "flavor": flavor, "name": name, "poolId": pool_id}
            provenance = self._asker.provenance(
                caller,
                owner=tenant_id,
                operation=CREATE_INSTANCE,
                idempotency_key=idempotency_key,
                content=content,
                always=True,
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse(Permission.INSTANCES_MANAGE, tenant_id=tenant_id):
            return denied
        async with self._asker.database.acquire() as connection:
            candidates = await find_candidates(connection, tenant_id=tenant_id, flavor=flavor, pool_id=pool_id)
        return await self._place(command, provenance, candidates, flavor)

    async def start(
        self, caller: Caller, *, tenant_id: Any, instance_id: Any, idempotency_key: Any = None
    ) -> Outcome[InstanceView]:
        """Run a stopped instance again: in its grant, else placed afresh over all reservations of its flavor that are
        offered to its tenant now (R36, D27, D32).

        Refuses INVALID_INPUT (shape), ACCESS_DENIED, NOT_FOUND, CONFLICT (key), then as `decide_start`.
        """
        return await self._act(
            caller, tenant_id, instance_id, StartInstance, operation=START_INSTANCE, idempotency_key=idempotency_key
        )

    async def stop(
        self, caller: Caller, *, tenant_id: Any, instance_id: Any, idempotency_key: Any = None
    ) -> Outcome[InstanceView]:
        """Refuses INVALID_INPUT (shape), ACCESS_DENIED, NOT_FOUND, CONFLICT (key), then as `decide_stop`."""
        return await self._act(
            caller, tenant_id, instance_id, StopInstance, operation=STOP_INSTANCE, idempotency_key=idempotency_key
        )

    async def delete(
        self, caller: Caller, *, tenant_id: Any, instance_id: Any, idempotency_key: Any = None
    ) -> Outcome[InstanceView]:
        """Refuses INVALID_INPUT (shape), ACCESS_DENIED, NOT_FOUND, CONFLICT (key). Deleting twice is no error."""
        return await self._act(
            caller, tenant_id, instance_id, DeleteInstance, operation=DELETE_INSTANCE, idempotency_key=idempotency_key
        )

    async def change_project(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        instance_id: Any,
        project_id: Any,
        start: Any = False,
        idempotency_key: Any = None,
    ) -> Outcome[InstanceView]:
        """Put an instance into another project of its tenant (D39). With `start` it runs afterwards, or nothing at all
        has changed (B23).

        Refuses INVALID_INPUT (shape), ACCESS_DENIED, NOT_FOUND, CONFLICT (key), then as `decide_change_project` or
        `decide_start`.
        """
        try:
            check_text(project_id, "projectId", PROJECT_ID)
            make = partial(StartInstance if check_boolean(start, "start") else ChangeProject, project_id=project_id)
        except Shape as shape:
            return shape.refusal
        return await self._act(
            caller,
            tenant_id,
            instance_id,
            make,
            operation=CHANGE_PROJECT,
            idempotency_key=idempotency_key,
            content={"projectId": project_id, "start": start},
        )

    async def attach(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        account_id: Any,
        reservation_id: Any,
        owner_tenant_id: Any,
        project_id: Any,
        name: Any,
        billing: Any = "normal",
        instance_id: Any = None,
        idempotency_key: Any = None,
    ) -> Outcome[InstanceView]:
        """Root: count in an instance that runs at the provider already, for `owner_tenant_id`; with `instance_id`, one
        that fell to on-demand when its reservation was gone (D14, R29, T49).

        Refuses in this order: INVALID_INPUT (shape), ACCESS_DENIED, CONFLICT (key), then as `decide_attach`.
        """
        try:
            key = reservation_key(
                check_text(account_id, "accountId", ACCOUNT_ID),
                check_text(reservation_id, "reservationId", RESERVATION_ID),
            )
            check_text(tenant_id, "tenantId", TENANT_ID)
            known_id = check_optional_text(instance_id, "instanceId", INSTANCE_ID)
            command = AttachInstance(
                instance_id=known_id or self._asker.ids.new("inst"),
                tenant_id=check_text(owner_tenant_id, "ownerTenantId", TENANT_ID),
                project_id=check_text(project_id, "projectId", PROJECT_ID),
                name=check_name(name, "name"),
                billing=_billing_of(billing),
            )
            content = {"key": key, "owner": owner_tenant_id, "projectId": project_id, "name": name, "billing": billing}
            provenance = self._asker.provenance(
                caller,
                owner=tenant_id,
                operation=ATTACH_INSTANCE,
                idempotency_key=idempotency_key,
                content={**content, "instanceId": known_id},
                always=True,
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_as_root(Permission.PROVIDERS_MANAGE, tenant_id=tenant_id):
            return denied
        if known_id is not None and not await self._lives_on(known_id, key):
            return _NO_INSTANCE
        return await self._shown(key, await self._asker.ask(key, command, provenance))

    async def _place(
        self, command: PlaceInstance, provenance: Provenance, candidates: list[Candidate], flavor: str
    ) -> Outcome[InstanceView]:
        """An own grant's slot on any reservation first, then an ordinary one, by reservation id (D32)."""
        outcome: Outcome[InstanceView] | None = None
        for key, grants_only in attempts_of(candidates):
            attempt = replace(command, grants_only=True) if grants_only else command
            outcome = await self._shown(key, await self._asker.ask(key, attempt, provenance), flavor)
            if outcome != NO_SLOT:
                return outcome
        if outcome is None and (remembered := await self._remembered(provenance)) is not None:
            return remembered
        if not candidates:
            message = "no pool that is offered to this tenant has this flavor"
            return InvalidInput(field="flavor", reason="flavor-not-offered", message=message)
        return NO_SLOT

    async def _act(
        self,
        caller: Caller,
        tenant_id: Any,
        instance_id: Any,
        make: Callable[..., CapacityCommand],
        *,
        operation: str,
        idempotency_key: Any,
        content: Mapping[str, Any] = MappingProxyType({}),
    ) -> Outcome[InstanceView]:
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            command = make(instance_id=check_text(instance_id, "instanceId", INSTANCE_ID))
            provenance = self._asker.provenance(
                caller,
                owner=tenant_id,
                operation=operation,
                idempotency_key=idempotency_key,
                content={"instanceId": instance_id, **content},
            )
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse(Permission.INSTANCES_MANAGE, tenant_id=tenant_id):
            return denied
        async with self._asker.database.acquire() as connection:
            found = await get_instance(connection, instance_id)
        if found is None or (found[1].tenant_id != tenant_id and not caller.principal.is_root):
            return _NO_INSTANCE
        answered = await self._of_instances.ask(Found(*found), command, provenance)
        return await self._shown(answered.key, answered.reply, found[2])

    async def _shown(self, key: str, reply: Reply, flavor: str | None = None) -> Outcome[InstanceView]:
        match reply.outcome:
            case Accepted(answer=Instance() as instance):
                return Accepted(InstanceView(key, instance, flavor or await self._flavor(key), reply.now))
            case Replayed(subject_id=instance_id):
                return await self._as_it_is_now(instance_id)
            case Refusal() as refusal:
                return refusal
        raise AssertionError(f"an instance command came to {reply.outcome!r}")

    async def _as_it_is_now(self, instance_id: str) -> Outcome[InstanceView]:
        async with self._asker.database.acquire() as connection:
            found = await get_instance(connection, instance_id)
            now = await self._asker.now(connection)
        return Accepted(InstanceView(found[0], found[1], found[2], now)) if found else _NO_INSTANCE

    async def _remembered(self, provenance: Provenance) -> Outcome[InstanceView] | None:
        """A retry gets its answer also when nothing could be asked any more."""
        async with self._asker.database.acquire() as connection:
            known = await recall(connection, provenance)
        return await self._as_it_is_now(known.subject_id) if isinstance(known, Replayed) else known

    async def _flavor(self, key: str) -> str:
        async with self._asker.database.acquire() as connection:
            flavor: str = await connection.fetchval("select flavor from capacity_reservation where key = $1", key)
        return flavor

    async def _lives_on(self, instance_id: str, key: str) -> bool:
        async with self._asker.database.acquire() as connection:
            found = await get_instance(connection, instance_id)
        return found is not None and found[0] == key


def _billing_of(value: Any) -> Billing:
    if isinstance(value, Billing):
        return value
    if value not in ("normal", "none"):
        raise Shape(InvalidInput(field="billing", reason="malformed", message="billing must be normal or none"))
    return Billing(value)
