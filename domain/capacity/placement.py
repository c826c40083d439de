"""Decisions about instances: where one may run, and what a stopped one keeps (R18..R29, R36, D27, D28, D39)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domain.capacity.commands import (
    AttachInstance,
    ChangeProject,
    DeleteInstance,
    PlaceInstance,
    SeekSlot,
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
UNPLACED = CapacityUnavailable(message="the instance holds no slot: it has to be placed afresh")
"""Between a desk and the books: the instance is not started where it is, but by R25 over all reservations (D27, D32)."""


def decide_place(
    state: CapacityState | None, command: PlaceInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Start a new instance on the reservation (R25): in a grant of its tenant, else on a free slot, else nowhere.

    Refuses INVALID_INPUT (project), then CAPACITY_UNAVAILABLE. There is no silent fall-back to on-demand.
    """
    if refusal := _refuse_project(command.tenant_id, command.project_id, around=around):
        return refusal
    seeking = SeekSlot(
        tenant_id=command.tenant_id,
        project_id=command.project_id,
        billing=Billing.NORMAL,
        grants_only=command.grants_only,
    )
    slot = _find_slot(state, seeking, around=around, now=now)
    if state is None or isinstance(slot, CapacityUnavailable):
        return NO_SLOT
    instance = Instance(
        instance_id=command.instance_id,
        tenant_id=command.tenant_id,
        project_id=command.project_id,
        name=command.name,
        created_at=now,
        run_state=RunState.RUNNING,
        grant_id=slot,
        wanted_pool_id=command.wanted_pool_id,
    )
    state.add_instance(instance, at=now)
    return Accepted(instance)


def decide_seek(
    state: CapacityState | None, command: SeekSlot, *, around: Surroundings, now: int
) -> Outcome[Instance | None]:
    """Whether R25 has a slot here. Refuses INVALID_INPUT (project), then CAPACITY_UNAVAILABLE. Changes nothing."""
    if refusal := _refuse_project(command.tenant_id, command.project_id, around=around):
        return refusal
    slot = _find_slot(state, command, around=around, now=now)
    return slot if isinstance(slot, CapacityUnavailable) else Accepted(None)


def decide_start(
    state: CapacityState | None, command: StartInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Run a stopped instance again. In its grant it needs physical room and nothing else (R23, D28); outside it is
    placed afresh (R36, D27); one whose reservation is gone runs on demand. A running one comes back unchanged, but for
    the project that it is to be in: of that and the start, both happen or neither (B23).

    Refuses NOT_FOUND, INVALID_STATE (deleted), INVALID_INPUT (its project is gone), CAPACITY_UNAVAILABLE.
    """
    instance = find_instance(state, command.instance_id, around=around)
    if refusal := _refuse_start(instance, command, around=around):
        return refusal
    assert state is not None
    assert instance is not None
    project_id = command.project_id or instance.project_id
    if instance.is_running:
        _change_project(state, instance, project_id, now=now)
        return Accepted(instance)
    grant_id = _slot_to_restart(state, instance, command, around=around, now=now)
    if isinstance(grant_id, CapacityUnavailable):
        return grant_id
    instance.project_id = project_id
    state.set_run_state(instance, RunState.RUNNING, at=now, grant_id=grant_id)
    return Accepted(instance)


def decide_start_elsewhere(
    origin: CapacityState, target: CapacityState, command: StartInstance, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Run a stopped instance of `origin` on `target`: it leaves the books of the one for those of the other (D27, D32).

    Refuses as `decide_start`, and CAPACITY_UNAVAILABLE too when it need not be placed afresh after all.
    """
    instance = find_instance(origin, command.instance_id, around=around)
    if refusal := _refuse_start(instance, command, around=around):
        return refusal
    assert instance is not None
    if not _is_unplaced(origin, instance, command):
        return NO_SLOT
    seeking = _seeking(instance, command)
    slot = _find_slot(target, seeking, around=around, now=now)
    if isinstance(slot, CapacityUnavailable):
        return slot
    moved = replace(instance, project_id=seeking.project_id, run_state=RunState.RUNNING, grant_id=slot)
    origin.send_away(instance, to=target.reservation.key)
    target.take_over(moved, at=now)
    return Accepted(moved)


def decide_change_project(
    state: CapacityState | None, command: ChangeProject, *, around: Surroundings, now: int
) -> Outcome[Instance]:
    """Put an instance into another project of its tenant: a grant that does not serve that one is left now, another is
    entered at its next boundary (D39). What has run stays the former project's.

    Refuses NOT_FOUND, INVALID_STATE (deleted), INVALID_INPUT (project).
    """
    instance = find_instance(state, command.instance_id, around=around)
    if state is None or instance is None:
        return NotFound(field="instanceId", message="no such instance")
    if instance.run_state is RunState.DELETED:
        return InvalidState(state="deleted", message="the instance is deleted")
    if refusal := _refuse_project(instance.tenant_id, command.project_id, around=around):
        return refusal
    _change_project(state, instance, command.project_id, now=now)
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
    if _has_moved(state, command.instance_id, around=around):
        return NotFound(field="instanceId", message="no such instance on this reservation")
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
    """Wherever it is remembered here; None too for one that has moved on to another reservation."""
    if state is None:
        return None
    if instance_id in state.instances:
        return state.instances[instance_id]
    if instance_id in state.changes.instances:
        return state.changes.instances[instance_id]  # deleted by a command before, in this very turn
    past = around.past_instances.get((state.reservation.key, instance_id))
    return past if past is not None and past.moved_to is None else None


def _has_moved(state: CapacityState, instance_id: str, *, around: Surroundings) -> bool:
    past = around.past_instances.get((state.reservation.key, instance_id))
    return past is not None and past.moved_to is not None


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


def _find_slot(
    state: CapacityState | None, seeking: SeekSlot, *, around: Surroundings, now: int
) -> str | CapacityUnavailable | None:
    """The one of its tenant's live grants to go into, None for an ordinary slot, or the refusal: the steps of R25."""
    if state is None or not _is_offered(state, seeking.tenant_id, around=around):
        return NO_SLOT
    if state.reservation.status is not ReservationStatus.READY or state.in_use >= state.reservation.total:
        return NO_SLOT
    may_enter = seeking.billing is Billing.NORMAL  # one that is billed to nobody is never in a grant (R31)
    grants = state.live_grants(seeking.tenant_id, at=now) if may_enter else []
    fitting = _with_room(state, grants, seeking.project_id)
    if fitting is not None:
        return fitting.grant_id
    return None if state.free >= 1 and not seeking.grants_only else NO_SLOT


def _with_room(state: CapacityState, grants: Iterable[Grant], project_id: str) -> Grant | None:
    for grant in grants:
        if grant.serves(project_id) and state.held(grant.grant_id) < grant.slots:
            return grant
    return None


def _refuse_start(instance: Instance | None, command: StartInstance, *, around: Surroundings) -> Refusal | None:
    if instance is None:
        return NotFound(field="instanceId", message="no such instance")
    if instance.run_state is RunState.DELETED:
        return InvalidState(state="deleted", message="the instance is deleted")
    if instance.is_running and command.project_id is None:
        return None
    return _refuse_project(instance.tenant_id, command.project_id or instance.project_id, around=around)


def _is_unplaced(state: CapacityState, instance: Instance, command: StartInstance) -> bool:
    """Whether nothing is its own to start on: it is in no grant, or in one that does not serve its new project."""
    if instance.is_running or not instance.attached:
        return False
    if instance.grant_id is None:
        return True
    return not state.grants[instance.grant_id].serves(command.project_id or instance.project_id)


def _slot_to_restart(
    state: CapacityState, instance: Instance, command: StartInstance, *, around: Surroundings, now: int
) -> str | CapacityUnavailable | None:
    if not instance.attached:
        return None
    if not _is_unplaced(state, instance, command):
        return NO_SLOT if state.in_use >= state.reservation.total else instance.grant_id
    if command.in_place:
        return UNPLACED
    return _find_slot(state, _seeking(instance, command), around=around, now=now)


def _seeking(instance: Instance, command: StartInstance) -> SeekSlot:
    return SeekSlot(
        tenant_id=instance.tenant_id,
        project_id=command.project_id or instance.project_id,
        billing=instance.billing,
        grants_only=command.grants_only,
    )


def _change_project(state: CapacityState, instance: Instance, project_id: str, *, now: int) -> None:
    if project_id == instance.project_id:
        return
    grant = state.grants.get(instance.grant_id or "")
    stays = grant is not None and grant.serves(project_id)
    state.set_project(instance, project_id, at=now, grant_id=instance.grant_id if stays else None)


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
