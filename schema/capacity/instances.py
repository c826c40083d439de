"""Instances: what runs on capacity reservations, and in which grant."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.capacity.state import Billing, Mode, RunState
from domain.capacity.views import InstanceView
from domain.identity import split_reservation_key
from schema.capacity.refusals import CapacityUnavailable
from schema.context import operation
from schema.inputs import ALL, ID, INPUT, RESERVATION, in_own_tenant, own_tenant, reservation_of
from schema.paging import AFTER, FIRST, Connection, connection, one, take, value
from schema.refusals import answer, answers_with, result
from schema.scalars import Millis, optional_id

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(RunState, name="RunState", description="Whether an instance runs.")
strawberry.enum(Billing, name="Billing", description="NONE: never billed, and never taken into a grant.")
strawberry.enum(Mode, name="BillingMode", description="Who pays for a running instance, and at which rate.")


@strawberry.type
class Instance:
    """A machine on a capacity reservation."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    project_id: strawberry.ID
    name: str
    flavor: str
    run_state: RunState
    billing: Billing
    billing_mode: Mode = strawberry.field(description="How its running time is billed now.")
    grant_id: strawberry.ID | None = strawberry.field(description="The grant that it is in.")
    created_at: Millis
    view: strawberry.Private[InstanceView]

    @strawberry.field
    def account_id(self) -> strawberry.ID | None:
        """The provider account; null unless the caller is root."""
        return for_root(split_reservation_key(self.view.key)[0])

    @strawberry.field
    def reservation_id(self) -> strawberry.ID | None:
        """The capacity reservation's id at the provider; null unless the caller is root."""
        return for_root(split_reservation_key(self.view.key)[1])

    @classmethod
    def of(cls, view: InstanceView) -> Instance:
        instance = view.instance
        return cls(
            id=strawberry.ID(instance.instance_id),
            tenant_id=strawberry.ID(instance.tenant_id),
            project_id=strawberry.ID(instance.project_id),
            name=instance.name,
            flavor=view.flavor,
            run_state=instance.run_state,
            billing=instance.billing,
            billing_mode=instance.mode,
            grant_id=optional_id(instance.grant_id),
            created_at=Millis(instance.created_at),
            view=view,
        )


def for_root(secret: str) -> strawberry.ID | None:
    """What is the platform's own is shown to nobody else (D46)."""
    return strawberry.ID(secret) if operation().caller.principal.is_root else None


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class CreateInstanceInput:
    """Runs in a grant of the tenant while one has a slot, else in an ordinary slot that is free."""

    tenant_id: strawberry.ID | None = None
    project_id: strawberry.ID
    flavor: str
    name: str
    pool_id: strawberry.ID | None = None
    idempotency_key: str | None = None


@strawberry.input
class InstanceInput:
    """Names an instance."""

    tenant_id: strawberry.ID | None = None
    instance_id: strawberry.ID
    idempotency_key: str | None = None


@strawberry.input
class ChangeInstanceProjectInput:
    """Names an instance, and the project of its tenant that it is to be in. With `start` it runs afterwards, or nothing
    has changed."""

    tenant_id: strawberry.ID | None = None
    instance_id: strawberry.ID
    project_id: strawberry.ID
    start: bool = False
    idempotency_key: str | None = None


@strawberry.input
class AttachInstanceInput:
    """Counts in an instance that runs at the provider already; with `instanceId`, one that is on demand since its
    capacity reservation was gone."""

    tenant_id: strawberry.ID | None = None
    account_id: strawberry.ID
    reservation_id: strawberry.ID
    owner_tenant_id: strawberry.ID
    project_id: strawberry.ID
    name: str
    billing: Billing = Billing.NORMAL
    instance_id: strawberry.ID | None = None
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

CreateInstanceResult = result("CreateInstanceResult", Instance, CapacityUnavailable)
StartInstanceResult = result("StartInstanceResult", Instance, CapacityUnavailable)
StopInstanceResult = result("StopInstanceResult", Instance)
DeleteInstanceResult = result("DeleteInstanceResult", Instance)
ChangeInstanceProjectResult = result("ChangeInstanceProjectResult", Instance, CapacityUnavailable)
AttachInstanceResult = result("AttachInstanceResult", Instance)


# -- query -------------------------------------------------------------------------------------------------------------


async def instances(*, first: int | None, after: str | None, **chosen: Any) -> Connection[Instance]:
    """A page of instances, counted when that is asked for. Raises the refusals of the read."""
    current = operation()
    reads = current.runtime.reads
    page = await reads.instances(current.caller, first=take(first), after=after, **chosen)

    async def count() -> Any:
        return await reads.count_instances(current.caller, **chosen)

    return connection(value(page), Instance.of, after=after, count=count)


@strawberry.type
class InstanceQuery:
    @strawberry.field
    async def instance(
        self,
        *,
        instance_id: Annotated[strawberry.ID, ID],
        tenant_id: strawberry.ID | None = None,
    ) -> Instance | None:
        """An instance of the tenant that the caller acts in, by default its own; for root in the root tenant, any."""
        current = operation()
        view = await current.runtime.reads.instance(
            current.caller, tenant_id=own_tenant(tenant_id), instance_id=instance_id
        )
        return one(view, Instance.of, instanceId="id")

    @strawberry.field
    async def instances(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        owner_tenant_id: Annotated[
            strawberry.ID | None, strawberry.argument(description="With all: those of one tenant.")
        ] = None,
        project_id: strawberry.ID | None = None,
        grant_id: strawberry.ID | None = None,
        run_state: RunState | None = None,
        reservation: Annotated[strawberry.ID | None, RESERVATION] = None,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Instance] | None:
        """Instances of the tenant, newest first, deleted ones too."""
        return await instances(
            tenant_id=own_tenant(tenant_id),
            all_tenants=all_tenants,
            owner_tenant_id=owner_tenant_id,
            project_id=project_id,
            grant_id=grant_id,
            run_state=run_state,
            **reservation_of(reservation, field="reservation"),
            first=first,
            after=after,
        )


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class InstanceMutation:
    @answers_with(CreateInstanceResult)
    async def create_instance(self, wanted: Annotated[CreateInstanceInput, INPUT]) -> Any:
        """Starts a new instance of a flavor."""
        current = operation()
        return answer(await current.runtime.instances.create(current.caller, **in_own_tenant(wanted)), Instance.of)

    @answers_with(StartInstanceResult)
    async def start_instance(self, wanted: Annotated[InstanceInput, INPUT]) -> Any:
        """Starts a stopped instance, in its grant; one that is in none is placed like a new one, on any capacity reservation
        of its flavor that is offered now. One that runs is answered as it is."""
        current = operation()
        return answer(await current.runtime.instances.start(current.caller, **in_own_tenant(wanted)), Instance.of)

    @answers_with(StopInstanceResult)
    async def stop_instance(self, wanted: Annotated[InstanceInput, INPUT]) -> Any:
        """Stops an instance. In a grant it keeps its slot for the tenant."""
        current = operation()
        return answer(await current.runtime.instances.stop(current.caller, **in_own_tenant(wanted)), Instance.of)

    @answers_with(DeleteInstanceResult)
    async def delete_instance(self, wanted: Annotated[InstanceInput, INPUT]) -> Any:
        """Deletes an instance and gives its slot back. Deleting twice is no error."""
        current = operation()
        return answer(await current.runtime.instances.delete(current.caller, **in_own_tenant(wanted)), Instance.of)

    @answers_with(ChangeInstanceProjectResult)
    async def change_instance_project(self, wanted: Annotated[ChangeInstanceProjectInput, INPUT]) -> Any:
        """Puts an instance into another project. It leaves a grant that does not serve that one, and enters another when
        the next one starts or ends."""
        current = operation()
        outcome = await current.runtime.instances.change_project(current.caller, **in_own_tenant(wanted))
        return answer(outcome, Instance.of)

    @answers_with(AttachInstanceResult)
    async def attach_instance(self, wanted: Annotated[AttachInstanceInput, INPUT]) -> Any:
        """Root only. An attached instance is in no grant until the next one starts or ends."""
        current = operation()
        return answer(await current.runtime.instances.attach(current.caller, **in_own_tenant(wanted)), Instance.of)
