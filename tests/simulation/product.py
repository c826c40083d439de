"""Plays the steps of a written history on the product: real desks, actors and jobs on a real PostgreSQL.

`ProductWorld.play` takes the same commands as a method of the naive model does and answers in the same words, so that
the two can be compared: ("ok", id) or (refusal code, details by their wire names).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from domain.capacity.commands import PlaceInstance
from domain.capacity.scan import ReportedReservation, ScanReport
from domain.capacity.state import Instance
from domain.capacity.views import InstanceView
from domain.identity import reservation_key
from domain.outcomes import Accepted, Refusal, Replayed
from storage.capacity.lookups import get_instance
from storage.database import Unavailable
from tests.capacity_world import CapacityNode, caller_of
from tests.simulation.histories import Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.world_plan import ROOT, WORLD, ReservationPlan, WorldPlan
from workers.capacity.boundaries import advance_all
from workers.capacity.instances import CREATE_INSTANCE

PLAIN_LETTERS = {"A": "e", "B": "f", "C": "g", "D": "h"}
PLAIN_PROJECTS = {tenant_id: "prj_" + letter * 26 for tenant_id, letter in PLAIN_LETTERS.items()}
"""The product's instances always belong to a project. This is the one of a tenant that no grant is restricted to: what
a history writes as "no project" is one of these, on both sides."""


def with_plain_projects(plan: WorldPlan) -> WorldPlan:
    plain = ((project_id, tenant_id) for tenant_id, project_id in PLAIN_PROJECTS.items())
    return plan._replace(projects=(*plan.projects, *plain))


PRODUCT_WORLD: WorldPlan = with_plain_projects(WORLD)
WIRE_NAMES = {"grant_ids": "grantIds", "grant_id": "grantId"}
ROOT_CALLER = caller_of(ROOT)


NOT_TOLD = "?"


class Played(NamedTuple):
    """What a step came to; where the answer tells them, the instant of the decision and the instance's grant."""

    outcome: Outcome
    at: int | None = None
    inside: str | None = NOT_TOLD


class ProductWorld:
    """The nodes of one database. Which of them takes a step is the caller's to say."""

    def __init__(self, nodes: Sequence[CapacityNode], plan: WorldPlan = PRODUCT_WORLD) -> None:
        self.nodes = nodes
        self.plan = plan

    async def play(self, step: Step, *, key: str, node: int = 0) -> Played:
        """One step with its ids filled in. `key` is the idempotency key of a step that brings none of its own."""
        desk = _Desk(self.nodes[node % len(self.nodes)], self.plan, key)
        command: Callable[..., Awaitable[Played]] = getattr(desk, step.command)
        return await command(**step.arguments)

    @property
    def keys(self) -> list[str]:
        return [reservation_key(each.account_id, each.reservation_id) for each in self.plan.reservations]


class _Desk:
    """The commands of `Oracle`, by their names and arguments."""

    def __init__(self, node: CapacityNode, plan: WorldPlan, key: str) -> None:
        self._node = node
        self._plan = plan
        self._key = key

    # -- grants --------------------------------------------------------------------------------------------------

    async def create_grant(self, *, tenant_id: str, key: str, **terms: Any) -> Played:
        outcome = await self._node.grants.create(
            caller_of(tenant_id), tenant_id=tenant_id, idempotency_key=key, **terms
        )
        return _told(outcome, lambda view: view.grant.grant_id)

    async def end_grant(self, **arguments: Any) -> Played:
        outcome = await self._node.grants.end(ROOT_CALLER, idempotency_key=self._key, **arguments)
        return _told(outcome, lambda view: view.grant.grant_id)

    async def amend_grant(self, *, version: int, **arguments: Any) -> Played:
        outcome = await self._node.grants.amend(
            ROOT_CALLER, idempotency_key=self._key, expected_version=version, **arguments
        )
        return _told(outcome, lambda view: view.grant.grant_id)

    # -- instances -----------------------------------------------------------------------------------------------

    async def create_instance(self, *, tenant_id: str, account_id: str, reservation_id: str, project_id: str) -> Played:
        """On one reservation: the desk knows flavors only, so this asks the reservation's actor."""
        asker = self._node.asker
        key = reservation_key(account_id, reservation_id)
        command = PlaceInstance(
            instance_id=asker.ids.new("inst"), tenant_id=tenant_id, project_id=project_id, name="an instance"
        )
        provenance = asker.provenance(
            caller_of(tenant_id),
            owner=tenant_id,
            operation=CREATE_INSTANCE,
            idempotency_key=self._key,
            content={"key": key, "projectId": project_id},
        )
        reply = await asker.ask(key, command, provenance)
        match reply.outcome:
            case Accepted(answer=Instance() as instance):
                return Played(("ok", instance.instance_id), reply.now, instance.grant_id)
            case Replayed(subject_id=instance_id):
                return Played(("ok", instance_id))
            case Refusal() as refusal:
                return Played(_refused(refusal))
        raise AssertionError(reply)

    async def create_instance_of_flavor(
        self, *, tenant_id: str, pool_id: str | None, flavor: str, project_id: str
    ) -> Played:
        outcome = await self._node.instances.create(
            caller_of(tenant_id),
            tenant_id=tenant_id,
            project_id=project_id,
            flavor=flavor,
            pool_id=pool_id,
            name="an instance",
            idempotency_key=self._key,
        )
        return _told(outcome, lambda view: view.instance.instance_id)

    async def start_instance(self, *, instance_id: str) -> Played:
        return await self._act(self._node.instances.start, instance_id)

    async def stop_instance(self, *, instance_id: str) -> Played:
        return await self._act(self._node.instances.stop, instance_id)

    async def delete_instance(self, *, instance_id: str) -> Played:
        return await self._act(self._node.instances.delete, instance_id)

    async def move_instance(self, *, instance_id: str, project_id: str, start: bool) -> Played:
        change = partial(self._node.instances.change_project, project_id=project_id, start=start)
        return await self._act(change, instance_id)

    async def attach_instance(
        self,
        *,
        tenant_id: str,
        project_id: str | None = None,
        existing_id: str | None = None,
        **arguments: Any,
    ) -> Played:
        if existing_id is not None:
            project_id = (await self._instance(existing_id)).project_id
        outcome = await self._node.instances.attach(
            ROOT_CALLER,
            tenant_id=ROOT,
            owner_tenant_id=tenant_id,
            project_id=project_id,
            name="an instance",
            instance_id=existing_id,
            idempotency_key=self._key,
            **arguments,
        )
        return _told(outcome, lambda view: view.instance.instance_id)

    async def _act(self, method: Callable[..., Awaitable[Any]], instance_id: str) -> Played:
        """As the owner: its tenant's member."""
        owner = (await self._instance(instance_id)).tenant_id
        outcome = await method(caller_of(owner), tenant_id=owner, instance_id=instance_id, idempotency_key=self._key)
        return _told(outcome, lambda view: view.instance.instance_id)

    async def _instance(self, instance_id: str) -> Instance:
        async with self._node.database.acquire() as connection:
            found = await get_instance(connection, instance_id)
        assert found is not None, instance_id
        return found[1]

    # -- reservations and pools ----------------------------------------------------------------------------------

    async def scan(self, *, account_id: str, reported: Mapping[str, Mapping[str, Any]], complete: bool) -> Played:
        """What the provider said, handed over as the scanning job does it."""
        plans = {each.reservation_id: each for each in self._plan.reservations if each.account_id == account_id}
        seen = tuple(_report(plans[reservation_id], said) for reservation_id, said in reported.items())
        provider = dict(self._plan.accounts)[account_id]
        report = ScanReport(reservations=seen, complete=complete)
        await self._node.reservations.take_report(account_id, provider, report)
        return Played(("ok", account_id))

    async def bind(self, *, account_id: str, reservation_id: str, pool_id: str) -> Played:
        outcome = await self._node.reservations.bind(
            ROOT_CALLER,
            tenant_id=ROOT,
            account_id=account_id,
            reservation_id=reservation_id,
            pool_id=pool_id,
            idempotency_key=self._key,
        )
        return _told(outcome, lambda _: reservation_id)

    async def unbind(self, *, account_id: str, reservation_id: str) -> Played:
        outcome = await self._node.reservations.unbind(
            ROOT_CALLER,
            tenant_id=ROOT,
            account_id=account_id,
            reservation_id=reservation_id,
            idempotency_key=self._key,
        )
        return _told(outcome, lambda _: reservation_id)

    async def offer(self, *, pool_id: str, tenant_id: str) -> Played:
        outcome = await self._node.accounts.offer_pool(
            ROOT_CALLER, pool_id=pool_id, offered_to=tenant_id, idempotency_key=self._key
        )
        return _told(outcome, lambda _: pool_id)

    async def withdraw(self, *, pool_id: str, tenant_id: str) -> Played:
        outcome = await self._node.guards.withdraw_pool(
            ROOT_CALLER, tenant_id=ROOT, pool_id=pool_id, offered_to=tenant_id, idempotency_key=self._key
        )
        return _told(outcome, lambda _: pool_id)

    # -- deletions -----------------------------------------------------------------------------------------------

    async def delete_account(self, *, account_id: str) -> Played:
        outcome = await self._node.guards.delete_account(
            ROOT_CALLER, tenant_id=ROOT, account_id=account_id, idempotency_key=self._key
        )
        return _told(outcome, lambda _: account_id)

    async def delete_tenant(self, *, tenant_id: str) -> Played:
        outcome = await self._node.tenancy.delete_tenant(ROOT_CALLER, tenant_id=tenant_id, idempotency_key=self._key)
        return _told(outcome, lambda tenant: tenant.tenant_id)

    async def delete_project(self, *, project_id: str) -> Played:
        outcome = await self._node.tenancy.delete_project(ROOT_CALLER, project_id=project_id, idempotency_key=self._key)
        return _told(outcome, lambda project: project.project_id)

    # -- jobs ----------------------------------------------------------------------------------------------------

    async def advance(self) -> Played:
        keys = [reservation_key(each.account_id, each.reservation_id) for each in self._plan.reservations]
        if failed := await advance_all(self._node.asker, keys):
            raise Unavailable(f"not advanced: {failed}")
        return Played(("ok", {}))

    async def meter(self) -> Played:
        ran = await self._node.meter.run_once()
        if ran.counts["failed"] or ran.counts["waiting"]:
            raise Unavailable(f"not metered: {ran}")
        return Played(("ok", {}))


def _report(plan: ReservationPlan, said: Mapping[str, Any]) -> ReportedReservation:
    return ReportedReservation(
        reservation_id=plan.reservation_id,
        flavor=plan.flavor,
        region=plan.region,
        total=said["total"],
        in_use=said["in_use"],
        ready=said["ready"],
    )


def _told(outcome: Any, name: Callable[[Any], str]) -> Played:
    if isinstance(outcome, Refusal):
        return Played(_refused(outcome))
    assert isinstance(outcome, Accepted), outcome
    answer = outcome.answer
    inside = answer.instance.grant_id if isinstance(answer, InstanceView) else NOT_TOLD
    return Played(("ok", name(answer)), getattr(answer, "at", None), inside)


def _refused(refusal: Refusal) -> Outcome:
    """Code and details by their wire names; NOT_FOUND has none on the wire (R64)."""
    details = refusal.details() if refusal.code != "NOT_FOUND" else {}
    named = {WIRE_NAMES.get(name, name): value for name, value in details.items()}
    return refusal.code, {name: list(value) if isinstance(value, tuple) else value for name, value in named.items()}
