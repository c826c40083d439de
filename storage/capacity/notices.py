"""Notices ahead of boundaries: the leads of tenants, the boundaries that want a notice, and the mark that one was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.capacity.notices import Leads, Notice, Runner, Taker
from domain.capacity.things import Grant
from storage.capacity.rows import grant_of
from storage.database import AnyConnection

# -- leads -------------------------------------------------------------------------------------------------------------

_READ_LEADS: Final = "select starting_ms, ending_ms from notice_lead where tenant_id = $1"
_WRITE_LEADS: Final = """
insert into notice_lead (tenant_id, starting_ms, ending_ms, set_at) values ($1, $2, $3, $4)
on conflict (tenant_id) do update
set starting_ms = excluded.starting_ms, ending_ms = excluded.ending_ms, set_at = excluded.set_at
"""


async def read_leads(connection: AnyConnection, tenant_id: str) -> Leads:
    """A tenant that has said nothing wants no notices."""
    row = await connection.fetchrow(_READ_LEADS, tenant_id)
    return Leads(tenant_id=tenant_id, **(dict(row) if row else {}))


async def flush_leads(connection: AnyConnection, leads: Leads, *, now: int) -> None:
    await connection.execute(_WRITE_LEADS, leads.tenant_id, leads.starting_ms, leads.ending_ms, now)


# -- what is due -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """A boundary within its tenant's lead of which nobody has been told."""

    key: str
    grant: Grant
    notice: Notice
    due_at: int
    lead_ms: int


# Only tenants who want notices are looked at, and of them only the grants that are open. A reservation whose events are
# still on their way is left for the next look: a notice must not overtake the news that the grant was made.
_DUE: Final = """
select g.*, d.type as notice, d.due_at, d.lead_ms
from notice_lead l
join capacity_grant g on g.tenant_id = l.tenant_id and g.cancelled_at is null and not g.ended_applied
cross join lateral (
    values ('reservation-grant.starting-soon', g.starts_at, l.starting_ms),
        ('reservation-grant.ending-soon', g.ends_at, l.ending_ms)
) d (type, due_at, lead_ms)
where d.lead_ms is not null and d.due_at > $1 and d.due_at <= $1 + d.lead_ms
    and not exists (
        select 1 from capacity_notice n
        where n.key = g.key and n.grant_id = g.grant_id and n.type = d.type and n.due_at = d.due_at
    )
    and ($2::text is null or g.key = $2)
    and not exists (select 1 from capacity_outbox o where o.key = g.key)
order by g.key, d.due_at, g.grant_id limit $3
"""
_HEAD: Final = "select 1 from capacity_reservation where key = $1 for no key update"


async def read_due(connection: AnyConnection, *, now: int, limit: int, key: str | None = None) -> list[Due]:
    """The boundaries that want a notice; with `key`, of one reservation."""
    return [
        Due(row["key"], grant_of(row), Notice(row["notice"]), row["due_at"], row["lead_ms"])
        for row in await connection.fetch(_DUE, now, key, limit)
    ]


async def lock_head(connection: AnyConnection, key: str) -> None:
    """Nothing about this reservation is decided until the caller commits: what is read after this is what holds."""
    await connection.execute(_HEAD, key)


_GIVE: Final = """
insert into capacity_notice (key, grant_id, type, due_at, told_at) values ($1, $2, $3, $4, $5) on conflict do nothing
"""


async def flush_given(connection: AnyConnection, due: Due, *, now: int) -> None:
    await connection.execute(_GIVE, due.key, due.grant.grant_id, due.notice.value, due.due_at, now)


_RUNNERS: Final = """
select created_at, instance_id, project_id from capacity_instance
where key = $1 and grant_id = $2 and run_state = 'running'
"""
_TAKERS: Final = """
select g.*, g.slots - (
    select count(*) from capacity_instance i where i.key = g.key and i.grant_id = g.grant_id
) as free
from capacity_grant g
where g.key = $1 and g.tenant_id = $2 and g.grant_id <> $3 and g.cancelled_at is null and not g.ended_applied
    and g.starts_at <= $4 and g.ends_at > $4
"""


async def read_runners(connection: AnyConnection, key: str, grant_id: str) -> list[Runner]:
    rows = await connection.fetch(_RUNNERS, key, grant_id)
    return [
        Runner(created_at=row["created_at"], instance_id=row["instance_id"], project_id=row["project_id"])
        for row in rows
    ]


async def read_takers(connection: AnyConnection, key: str, grant: Grant) -> list[Taker]:
    """The tenant's other grants that are live at the instant of this one's end."""
    rows = await connection.fetch(_TAKERS, key, grant.tenant_id, grant.grant_id, grant.ends_at)
    return [Taker(grant=grant_of(row), free=row["free"]) for row in rows]
