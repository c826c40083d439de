"""Notices ahead of a grant's start and end (F6): how early a tenant wants them, and the job that gives them."""

from __future__ import annotations

from typing import Any, Final

from domain.authority import Permission
from domain.capacity.boundaries import grant_event
from domain.capacity.notices import LEAD_LEAST_MS, LEAD_MAX_MS, Leads, Notice, ending_facts
from domain.events import NewEvent
from domain.identity import TENANT_ID
from domain.outcomes import Accepted, Outcome
from domain.shapes import Shape, check_integer, check_text
from domain.tenancy import refuse_tenant
from storage import identity
from storage.capacity.notices import (
    Due,
    flush_given,
    flush_leads,
    lock_head,
    read_due,
    read_leads,
    read_runners,
    read_takers,
)
from storage.database import AnyConnection
from storage.events import append_events
from workers.capacity.asking import CapacityAsker
from workers.registry import Registrar, Turn, refuse_invisible, refuse_reader
from workers.request import Caller
from workers.schedule import Ran

SET_LEADS: Final = "tenants.setNoticeLeads"
PAGE: Final = 500
"""Notices of one look, and of one reservation at a time."""


class NoticeDesk:
    """A tenant's members say for themselves, root's for everybody."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    async def set_leads(
        self, caller: Caller, *, tenant_id: Any, starting_ms: Any, ending_ms: Any, idempotency_key: Any = None
    ) -> Outcome[Leads]:
        """How long ahead of a start and of an end the tenant is told; None: not at all.

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, CONFLICT (key), NOT_FOUND, INVALID_STATE (deleted).
        """
        try:
            owner = check_text(tenant_id, "tenantId", TENANT_ID)
            leads = Leads(
                tenant_id=owner,
                starting_ms=_check_lead(starting_ms, "startingSoonMs"),
                ending_ms=_check_lead(ending_ms, "endingSoonMs"),
            )
            content = {"tenantId": owner, "startingSoonMs": leads.starting_ms, "endingSoonMs": leads.ending_ms}
            request = self._registrar.request(caller, SET_LEADS, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse_for(Permission.TENANCY_MANAGE, tenant_id=owner):
            return denied

        async def decide(turn: Turn) -> Outcome[Leads]:
            tenants = await identity.lock_tenants_shared(turn.connection, [owner])
            if refusal := refuse_tenant(tenants.get(owner)):
                return refusal
            await flush_leads(turn.connection, leads, now=await turn.now())
            return Accepted(leads)

        return await self._registrar.write(request, decide, subject=lambda each: each.tenant_id, again=read_leads)

    async def leads(self, caller: Caller, *, tenant_id: Any) -> Outcome[Leads]:
        """Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another tenant's too)."""
        try:
            owner = check_text(tenant_id, "tenantId", TENANT_ID)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller):
            return denied
        async with self._registrar.reading() as turn:
            if refusal := await refuse_invisible(turn, caller, owner):
                return refusal
            return Accepted(await read_leads(turn.connection, owner))


class NoticeJob:
    """`vps.notices`. Two nodes at once give each notice once: they meet at the reservation's head."""

    def __init__(self, asker: CapacityAsker, registrar: Registrar) -> None:
        self._asker = asker
        self._registrar = registrar

    async def run_once(self) -> Ran:
        """Give every notice that is due, one transaction a reservation; how many."""
        given = 0
        async with self._registrar.reading() as turn:
            due = await read_due(turn.connection, now=await turn.now(), limit=PAGE)
        for key in dict.fromkeys(each.key for each in due):
            given += await self._give(key)
        return Ran(counts={"notices": given}, wake_in_ms=0 if len(due) == PAGE and given else None)

    async def _give(self, key: str) -> int:
        """Look again under the head's lock: a grant that was ended meanwhile is announced no more."""
        async with self._registrar.writing() as turn:
            await lock_head(turn.connection, key)
            now = await turn.now()
            due = await read_due(turn.connection, now=now, limit=PAGE, key=key)
            events = [await self._event(turn.connection, each, now=now) for each in due]
            for each in due:
                await flush_given(turn.connection, each, now=now)
            await append_events(turn.connection, events, recorded_at=now)
        return len(due)

    async def _event(self, connection: AnyConnection, due: Due, *, now: int) -> NewEvent:
        grant = due.grant
        told = grant_event(due.notice.value, grant, at=now)
        payload = {**told.payload, "leadMs": due.due_at - now}
        if due.notice is Notice.ENDING_SOON:
            runners = await read_runners(connection, due.key, grant.grant_id)
            payload |= ending_facts(runners, await read_takers(connection, due.key, grant))
        return NewEvent(
            event_id=self._asker.ids.new("evt"),
            tenant_id=grant.tenant_id,
            type=told.type,
            occurred_at=now,
            payload=payload,
        )


def _check_lead(value: Any, field: str) -> int | None:
    return None if value is None else check_integer(value, field, least=LEAD_LEAST_MS, most=LEAD_MAX_MS)
