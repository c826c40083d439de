"""Reads of instances: one, and pages of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.state import Instance, RunState
from domain.capacity.views import InstanceView
from domain.identity import GRANT_ID, INSTANCE_ID, PROJECT_ID, TENANT_ID
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.shapes import Shape, check_optional_text, check_text
from storage.capacity.activity import read_due_keys
from storage.capacity.lookups import get_key
from storage.capacity.pages import InstanceFilter, PlacedInstance, count_instances, find_instance, page_instances
from storage.database import AnyConnection
from storage.paging import Page, Position
from workers.capacity.current import current_instances, members_of, noted_states, page_of, position_of
from workers.capacity.reading import (
    Reading,
    Snapshot,
    check_flag,
    check_optional_reservation,
    check_page,
    check_word,
    refuse_reader,
)
from workers.request import Caller

_NO_INSTANCE: Final = NotFound(field="instanceId", message="no such instance")


@dataclass(frozen=True, slots=True)
class _Question:
    chosen: InstanceFilter
    grant_id: str | None
    first: int
    after: Position | None


class InstanceReads(Reading):
    async def instance(self, caller: Caller, *, tenant_id: Any, instance_id: Any) -> InstanceView | Refusal:
        """The tenant's own instance, or any one for root acting in the root tenant; a deleted one too.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another's too).
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            check_text(instance_id, "instanceId", INSTANCE_ID)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse(Permission.INSTANCES_READ, tenant_id=tenant_id):
            return denied
        async with self._snapshot() as snapshot:
            key = await get_key(snapshot.connection, instance_id)
            placed = await find_instance(snapshot.connection, key, instance_id) if key else None
            if placed is None or not (caller.principal.is_root or placed.instance.tenant_id == tenant_id):
                return _NO_INSTANCE
            return (await current_instances(snapshot.connection, [placed], snapshot.instants))[0]

    async def instances(self, caller: Caller, **given: Any) -> Page[InstanceView] | Refusal:
        """A page of instances, newest first; deleted ones too, unless `run_state` says otherwise.

        Takes `tenant_id`; `all_tenants` for root acting in the root tenant, and then `owner_tenant_id` for those of one
        tenant; the filters `project_id`, `grant_id`, `run_state`; `account_id` with `reservation_id` for root only;
        `first` (200 at most), `after`. Refuses in this order: INVALID_INPUT, ACCESS_DENIED.
        """
        question = _question(caller, **given)
        if isinstance(question, Refusal):
            return question
        async with self._snapshot() as snapshot:
            chosen = await _located(snapshot.connection, question)
            if chosen is None:
                return Page()
            if (members := await _due_members(snapshot, chosen)) is not None:
                return _page_in_memory(members, chosen, question, at=snapshot.instants.of(chosen.key or ""))
            return await _page(snapshot, chosen, question)

    async def count_instances(self, caller: Caller, **given: Any) -> int | Refusal:
        """How many instances `instances` would page through; takes the same."""
        question = _question(caller, **given)
        if isinstance(question, Refusal):
            return question
        async with self._snapshot() as snapshot:
            chosen = await _located(snapshot.connection, question)
            if chosen is None:
                return 0
            if (members := await _due_members(snapshot, chosen)) is not None:
                return sum(_fits(one.instance, chosen) for one in members)
            return await count_instances(snapshot.connection, chosen)


def _question(
    caller: Caller,
    *,
    tenant_id: Any,
    all_tenants: Any = None,
    owner_tenant_id: Any = None,
    project_id: Any = None,
    grant_id: Any = None,
    run_state: Any = None,
    account_id: Any = None,
    reservation_id: Any = None,
    first: Any = None,
    after: Any = None,
) -> _Question | Refusal:
    try:
        check_text(tenant_id, "tenantId", TENANT_ID)
        everybody = check_flag(all_tenants, "all")
        owner = check_optional_text(owner_tenant_id, "ownerTenantId", TENANT_ID)
        key = check_optional_reservation(account_id, reservation_id)
        grant = check_optional_text(grant_id, "grantId", GRANT_ID)
        chosen = InstanceFilter(
            tenant_id=owner if everybody else tenant_id,
            key=key,
            project_id=check_optional_text(project_id, "projectId", PROJECT_ID),
            run_state=check_word(run_state, "runState", RunState),
        )
        count, position = check_page(first, after, pattern=INSTANCE_ID)
    except Shape as shape:
        return shape.refusal
    if denied := refuse_reader(
        caller, Permission.INSTANCES_READ, tenant_id=tenant_id, as_root=everybody or key is not None
    ):
        return denied
    if owner is not None and not everybody and owner != tenant_id:
        message = "instances of another tenant are read with all: true"
        return InvalidInput(field="ownerTenantId", reason="needs-all", message=message)
    return _Question(chosen, grant, count, position)


async def _located(connection: AnyConnection, question: _Question) -> InstanceFilter | None:
    """The filter with the reservation that the grant is on; None when nothing can match."""
    chosen = question.chosen
    if question.grant_id is None:
        return chosen
    key = await get_key(connection, question.grant_id)
    if key is None or chosen.key not in (None, key):
        return None
    return InstanceFilter(
        tenant_id=chosen.tenant_id,
        key=key,
        project_id=chosen.project_id,
        grant_id=question.grant_id,
        run_state=chosen.run_state,
    )


async def _due_members(snapshot: Snapshot, chosen: InstanceFilter) -> list[PlacedInstance] | None:
    """The instances of the grant that is asked about while its reservation's rows are stale; else None."""
    if chosen.grant_id is None or chosen.key is None:
        return None
    due = await read_due_keys(snapshot.connection, {chosen.key: snapshot.instants.of(chosen.key)})
    states = await noted_states(snapshot.connection, due, snapshot.instants)
    return members_of(states[chosen.key], chosen.grant_id) if chosen.key in states else None


async def _page(snapshot: Snapshot, chosen: InstanceFilter, question: _Question) -> Page[InstanceView]:
    page = await page_instances(snapshot.connection, chosen, first=question.first, after=question.after)
    views = await current_instances(snapshot.connection, page.items, snapshot.instants)
    return Page(tuple(views), page.positions, page.has_more)


def _page_in_memory(
    members: list[PlacedInstance], chosen: InstanceFilter, question: _Question, *, at: int
) -> Page[InstanceView]:
    """Which instances are in a grant is not in the rows while a boundary is due."""
    after = question.after
    rest = [
        one
        for one in members
        if _fits(one.instance, chosen) and (after is None or _place(position_of(one.instance)) < _place(after))
    ]
    return page_of(rest, first=question.first, at=at)


def _place(position: Position) -> tuple[int, str]:
    return (position.created_at, position.id)


def _fits(instance: Instance, chosen: InstanceFilter) -> bool:
    return (
        chosen.tenant_id in (None, instance.tenant_id)
        and chosen.project_id in (None, instance.project_id)
        and chosen.run_state in (None, instance.run_state)
    )
