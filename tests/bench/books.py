"""Are the books right? Asked after every window, of the tables alone, by arithmetic that shares no code with the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

from storage.database import AnyConnection
from tests.bench.demand import SEEDED_BY, Demand, Told

_GRANTS: Final = "select key, grant_id, slots, starts_at, ends_at, created_by from capacity_grant where key = any ($1)"
_ANSWERS: Final = "select idempotency_key, subject_id from answer where subject_id = any ($1)"
_CREATED: Final = "reservation-grant.created"


async def check_grants(connection: AnyConnection, demand: Demand) -> list[str]:
    """Grants = accepted replies, one answer row a key, and at no instant more slots than there are.

    Where all grants overlap, nobody may have been refused before the last slot was gone.
    """
    told, wrong = demand.told, []
    rows = await connection.fetch(_GRANTS, told.keys)
    made = {row["grant_id"] for row in rows if row["created_by"] != SEEDED_BY}
    promised = set(told.grants.values())
    if made != promised:
        wrong.append(f"{len(promised - made)} promised grants are missing, {len(made - promised)} were never promised")
    if len(promised) != len(told.grants):
        wrong.append("two requests were promised one grant")
    answers = await connection.fetch(_ANSWERS, sorted(promised))
    if Counter((row["idempotency_key"], row["subject_id"]) for row in answers) != Counter(told.grants.items()):
        wrong.append(f"{len(answers)} remembered answers for {len(told.grants)} accepted requests, or other ones")
    peaks, total = _peaks(rows), demand.shape.total
    wrong.extend(f"{key} has {peak} slots granted at once of {total}" for key, peak in peaks.items() if peak > total)
    if demand.shape.overlaps and (early := [key for key in told.refused if peaks.get(key, 0) != total]):
        wrong.append(f"somebody was refused though {early[0]} had room")
    return wrong


def _peaks(rows: list[Any]) -> dict[str, int]:
    """Key to the highest sum of slots at any instant: ends free their slots before starts at the same instant."""
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        changes[row["key"]] += [(row["starts_at"], row["slots"]), (row["ends_at"], -row["slots"])]
    peaks = {}
    for key, steps in changes.items():
        level = peak = 0
        for _, slots in sorted(steps):
            level += slots
            peak = max(peak, level)
        peaks[key] = peak
    return peaks


_STREAMS: Final = """
select s.tenant_id, s.last_seq, count(e.seq) as events, min(e.seq) as least, max(e.seq) as most
from event_stream s left join event e on e.tenant_id = s.tenant_id
group by s.tenant_id, s.last_seq
"""
_PUBLISHED: Final = """
select tenant_id = '*' as is_mirror, count(*) as events, count(distinct payload ->> 'grantId') as grants
from event where type = $1 and payload ->> 'grantId' = any ($2) group by 1
"""
_WAITING: Final = "select count(*) from capacity_outbox"
_NUMBERED: Final = "select sum(outbox_seq) from capacity_reservation"
# Tenants' own events did not come through an outbox of capacity.
_MIRRORED: Final = "select count(*) from event where tenant_id = '*' and type like 'reservation-grant.%'"


async def check_streams(connection: AnyConnection, told: Told) -> list[str]:
    """No stream has a gap, the outbox is empty, and every grant is told once in its tenant's stream and once in the mirror."""
    wrong = [
        f"the stream {row['tenant_id']} has {row['events']} events, the last is number {row['last_seq']}"
        for row in await connection.fetch(_STREAMS)
        if (row["least"] or 1, row["most"] or 0, row["events"]) != (1, row["last_seq"], row["last_seq"])
    ]
    if waiting := await connection.fetchval(_WAITING):
        wrong.append(f"{waiting} events still wait in the outbox")
    if (numbered := await connection.fetchval(_NUMBERED)) != (mirrored := await connection.fetchval(_MIRRORED)):
        wrong.append(f"{numbered} events were numbered, {mirrored} are in the mirror")
    published = await connection.fetch(_PUBLISHED, _CREATED, sorted(told.grants.values()))
    counts = {row["is_mirror"]: (row["events"], row["grants"]) for row in published}
    expected = {False: (len(told.grants),) * 2, True: (len(told.grants),) * 2} if told.grants else {}
    if counts != expected:
        wrong.append(f"{len(told.grants)} grants were made; events tell (in the mirror?): {counts}")
    return wrong


_OUTBOXES: Final = """
select r.key, r.outbox_seq, count(o.seq) as events, min(o.seq) as least, max(o.seq) as most
from capacity_reservation r left join capacity_outbox o on o.key = r.key
where r.key = any ($1) group by r.key, r.outbox_seq
"""


async def check_outboxes(connection: AnyConnection, told: Told) -> list[str]:
    """For a baseline that leaves its events where they were written: every reservation's are numbered without a gap."""
    rows = await connection.fetch(_OUTBOXES, told.keys)
    wrong = [
        f"{row['key']} has {row['events']} events, the last is number {row['outbox_seq']}"
        for row in rows
        if (row["least"] or 1, row["most"] or 0, row["events"]) != (1, row["outbox_seq"], row["outbox_seq"])
    ]
    if sum(row["events"] for row in rows) != len(told.grants):
        wrong.append(f"{len(told.grants)} grants were made, {sum(row['events'] for row in rows)} events tell")
    return wrong
