"""Decisions about instances: where one may run, and what a stopped one keeps (R18..R29, R36, D27, D28)."""

from __future__ import annotations

from collections.abc import Iterable

from domain.capacity.commands import (
    AttachInstance,
    DeleteInstance,
    PlaceInstance,
    StartInstance,
    StopInstance,
    Surroundings,
)
from domain.capacity.observation import is_lost
from domain.capacity.refusals import CapacityUnavailable
from domain.capacity.state import Billing, CapacityState, Grant, Instance, ReservationStatus, RunState
from domain.outcomes import Accepted, InvalidInput, InvalidState, NotFound, Outcome, Refusal

NO_SLOT = CapacityUnavailable(message="no slot of the reservation is free for this instance")
"""R28: to a tenant the refusal carries no totals, and does not tell a full reservation from granted slots."""


def decide_place(
    state: CapacityState | None, command: PlaceInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Start a new instance on the reservation (R25): in a grant of its tenant, else on a free slot, else nowhere.

    Refuses INVALID_INPUT (project), then CAPACITY_UNAVAILABLE. There is no silent fall-back to on-demand.
    """
    if refusal := _refuse_project(command.tenant_id, command.project_id, around=around):
        return refusal
    if state is None or not _is_offered(state, command.tenant_id, around=around):
        return NO_SLOT
    slot = _find_slot(state, state.live_grants(command.tenant_id, at=now), command.project_id)
    if isinstance(slot, CapacityUnavailable) or (command.grants_only and slot is None):
        return NO_SLOT
    instance = Instance(
        instance_id=command.instance_id,
        tenant_id=command.tenant_id,
        project_id=command.project_id,
        name=command.name,
        created_at=now,
        run_state=RunState.RUNNING,
        grant_id=slot.grant_id if slot else None,
    )
    state.add_instance(instance, at=now)
    return Accepted(instance)


def decide_start(
    state: CapacityState | None, command: StartInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Run a stopped instance again. In its grant it needs physical room and nothing else (R23, D28); outside it is
    placed afresh (R36, D27); one whose reservation is gone runs on demand. A running one comes back unchanged.

    Refuses NOT_FOUND, INVALID_STATE (deleted), INVALID_INPUT (its project is gone), CAPACITY_UNAVAILABLE.
    """
    instance = find_instance(state, command.instance_id, around=around)
    if state is None or instance is None:
        return NotFound(field="instanceId", message="no such instance")
    if instance.run_state is RunState.DELETED:
        return InvalidState(state="deleted", message="the instance is deleted")
    if instance.is_running:
        return Accepted(instance)
    if refusal := _refuse_project(instance.tenant_id, instance.project_id, around=around):
        return refusal
    grant_id = _slot_to_restart(state, instance, now=now)
    if isinstance(grant_id, CapacityUnavailable):
        return grant_id
    state.set_run_state(instance, RunState.RUNNING, at=now, grant_id=grant_id)
    return Accepted(instance)


def decide_stop(
    state: CapacityState | None, command: StopInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Stop an instance. In a grant it keeps its slot for the grantee (R23); outside it holds nothing any more (D27).

    Refuses NOT_FOUND, INVALID_STATE (deleted). A stopped one comes back unchanged.
    """
    instance = find_instance(state, command.instance_id, around=around)
    if state is None or instance is None:
        return NotFound(field="instanceId", message="no such instance")
    if instance.run_state is RunState.DELETED:
        return InvalidState(state="deleted", message="the instance is deleted")
    if instance.is_running:
        state.set_run_state(instance, RunState.STOPPED, at=now, grant_id=instance.grant_id)
    return Accepted(instance)


def decide_delete(
    state: CapacityState | None, command: DeleteInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Delete an instance: its slot goes back to its grant, or to everybody (R24), once however often it is asked (B10).

    Refuses NOT_FOUND.
    """
    instance = find_instance(state, command.instance_id, around=around)
    if state is None or instance is None:
        return NotFound(field="instanceId", message="no such instance")
    if instance.run_state is not RunState.DELETED:
        state.set_run_state(instance, RunState.DELETED, at=now, grant_id=None)
    return Accepted(instance)


def decide_attach(
    state: CapacityState | None, command: AttachInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Count in an instance that runs at the provider, or one that is on demand since the reservation was gone (D14).

    It holds a slot and enters no grant (R29, T49); nothing is refused for lack of room, for it runs already (R59).
    Refuses NOT_FOUND, INVALID_STATE (reservation gone, or the instance is deleted or attached), INVALID_INPUT (project).
    """
    if state is None or is_lost(state, around=around):
        return NotFound(field="reservationId", message="no such reservation on this account")
    if state.reservation.status is ReservationStatus.GONE:
        return InvalidState(state="gone", message="the reservation is gone")
    if refusal := _refuse_project(command.tenant_id, command.project_id, around=around):
        return refusal
    known = find_instance(state, command.instance_id, around=around)
    if known is not None:
        return _attach_again(state, known, command, now=now)
    instance = Instance(
        instance_id=command.instance_id,
        tenant_id=command.tenant_id,
        project_id=command.project_id,
        name=command.name,
        created_at=now,
        run_state=RunState.RUNNING,
        billing=command.billing,
    )
    state.add_instance(instance, at=now)
    return Accepted(instance)


def find_instance(state: CapacityState | None, instance_id: str, *, around: Surroundings) -> Instance | None:
    if state is not None and instance_id in state.instances:
        return state.instances[instance_id]
    if state is not None and instance_id in state.changes.instances:
        return state.changes.instances[instance_id]  # deleted by a command before, in this very turn
    return around.past_instances.get(instance_id)


def _attach_again(state: CapacityState, instance: Instance, command: AttachInstance, *, now: int) -> Outcome[Instance]:
    if (instance.tenant_id, instance.project_id) != (command.tenant_id, command.project_id):
        return NotFound(field="instanceId", message="no such instance of this project")
    if instance.run_state is RunState.DELETED:
        return InvalidState(state="deleted", message="the instance is deleted")
    if instance.attached:
        return InvalidState(state="attached", message="the instance is attached to this reservation already")
    instance.billing = command.billing
    state.place(instance, at=now, grant_id=None, attached=True)
    return Accepted(instance)


def _find_slot(state: CapacityState, grants: Iterable[Grant], project_id: str) -> Grant | CapacityUnavailable | None:
    """The one of its tenant's live grants to go into, None for an ordinary slot, or the refusal: the steps of R25."""
    if state.reservation.status is not ReservationStatus.READY:
        return NO_SLOT
    if state.in_use >= state.reservation.total:
        return NO_SLOT
    fitting = _with_room(state, grants, project_id)
    if fitting is not None:
        return fitting
    return None if state.free >= 1 else NO_SLOT


def _with_room(state: CapacityState, grants: Iterable[Grant], project_id: str) -> Grant | None:
    for grant in grants:
        if grant.serves(project_id) and state.held(grant.grant_id) < grant.slots:
            return grant
    return None


def _slot_to_restart(state: CapacityState, instance: Instance, *, now: int) -> str | CapacityUnavailable | None:
    if not instance.attached:
        return None
    if instance.grant_id is not None:
        return NO_SLOT if state.in_use >= state.reservation.total else instance.grant_id
    may_enter = instance.billing is Billing.NORMAL  # one that is billed to nobody is never in a grant (R31)
    grants = state.live_grants(instance.tenant_id, at=now) if may_enter else []
    slot = _find_slot(state, grants, instance.project_id)
    return slot.grant_id if isinstance(slot, Grant) else slot


def _is_offered(state: CapacityState, tenant_id: str, *, around: Surroundings) -> bool:
    """A withdrawn offer closes the door for new instances; what runs already is left alone (R59)."""
    pool_id = state.reservation.pool_id
    return pool_id is not None and around.is_offered(pool_id, tenant_id)


def _refuse_project(tenant_id: str, project_id: str, *, around: Surroundings) -> Refusal | None:
    """Tenant and project exist and belong together; an unknown project and another's look the same (R9)."""
    if tenant_id in around.tenants and around.projects.get(project_id) == tenant_id:
        return None
    message = "projectId is not a project of this tenant"
    return InvalidInput(field="projectId", reason="project-not-tenant", message=message)
