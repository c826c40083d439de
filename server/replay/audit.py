"""The invariants P1 to P9, each held against the rows of one reservation: nothing here asks the code that wrote them.

Every check returns its violations in words, none if it holds, and says in its docstring what it looks at. P3, lateness,
needs the commands of a run and is in `lateness`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from domain.capacity.metering import GRANT_USAGE_HOURS, ONDEMAND_INSTANCE_HOURS, RESERVED_INSTANCE_HOURS
from domain.capacity.state import Billing, Grant, Instance, Mode, RunState
from server.replay.history import committed_by_hour, idle_by_grant, moments, past_moments, slots_at
from storage.capacity.audit import AuditedSegment, Books, page_keys, read_books
from storage.database import Database

KEYS_MAX: Final = 500
"""Reservations whose keys are read at a time."""

EVENT_PREFIX: Final = "reservation-grant."
ENDLESS: Final = 2**62

METERS: Final[Mapping[Mode, str]] = {
    Mode.GRANT: GRANT_USAGE_HOURS,
    Mode.RESERVED: RESERVED_INSTANCE_HOURS,
    Mode.ONDEMAND: ONDEMAND_INSTANCE_HOURS,
}

Check = Callable[[Books], list[str]]


async def audit_database(database: Database) -> list[str]:
    """Hold every reservation of a database against what can be told from rows alone. Reads only."""
    found: list[str] = []
    after = ""
    while True:
        async with database.acquire() as connection:
            keys = await page_keys(connection, after=after, limit=KEYS_MAX)
        if not keys:
            return found
        for key in keys:
            async with database.transaction(isolation="repeatable_read") as connection:
                books = await read_books(connection, key)
            found += [f"{key}: {violation}" for violation in audit_books(books, STANDING)]
        after = keys[-1]


def audit_books(books: Books, checks: Mapping[str, Check]) -> list[str]:
    """All violations of these checks, each with the name of its invariant in front."""
    return [f"{name}: {violation}" for name, check in checks.items() for violation in check(books)]


# -- what there is -----------------------------------------------------------------------------------------------------


def audit_members(books: Books) -> list[str]:
    """P1. As the rows stand, and at every instant there was: a grant holds at most its slots, in its term, and only
    instances of its tenant and project that are billed to somebody."""
    found: list[str] = []
    held = Counter(instance.grant_id for instance in books.instances.values())
    found += [
        f"{grant.grant_id} holds {held[grant.grant_id]} of {grant.slots}"
        for grant in books.grants.values()
        if held[grant.grant_id] > grant.slots
    ]
    for instance in books.instances.values():
        if instance.grant_id is not None:
            found += _misfit(instance, books.grants.get(instance.grant_id))
            if instance.billing is Billing.NONE or instance.run_state is RunState.DELETED:
                found.append(f"{instance.instance_id} is in a grant, billed {instance.billing}, {instance.run_state}")
    for each in books.segments:
        if each.segment.grant_id is not None:
            then = replace(books.instances[each.instance_id], project_id=each.segment.project_id)
            found += _misfit(then, books.grants.get(each.segment.grant_id))
    for moment in past_moments(books):
        for grant_id, running in moment.inside.items():
            if running > moment.live.get(grant_id, 0):
                slots = moment.live.get(grant_id, 0)
                found.append(f"{running} instances run in {grant_id} at {moment.at}, which has {slots} slots then")
    return found


def audit_free(books: Books) -> list[str]:
    """P2. At every instant there was, both forms of F agree (R19, R20); and what decisions read is what rows say."""
    found = []
    total = books.head.total
    for moment in past_moments(books):
        in_use = moment.outside + sum(moment.inside.values())
        unused = sum(slots - moment.inside[grant_id] for grant_id, slots in moment.live.items() if slots)
        long_form, closed_form = total - in_use - unused, total - moment.outside - sum(moment.live.values())
        if long_form != closed_form:
            found.append(f"at {moment.at} F is {long_form} by U and unused slots, {closed_form} in the closed form")
    outside = sum(
        instance.run_state is RunState.RUNNING and instance.attached and instance.grant_id is None
        for instance in books.instances.values()
    )
    live = sum(slots_at(grant, books.at) for grant in books.grants.values())
    counted = total - outside - books.head.external_in_use - live
    if counted != books.free:
        found.append(f"F is {counted} by rows, {books.free} by the books that decisions read")
    return found


def audit_events(books: Books) -> list[str]:
    """P4. Each grant's events are the ones that its row calls for, in order, each at its boundary (R17, R63).

    Amendments lie in between and are passed over. A stream that retention has cut may lack the first ones.
    """
    found = []
    happened: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for event in books.events:
        kind = event.type.removeprefix(EVENT_PREFIX)
        grant = books.grants[event.payload["grantId"]]
        if kind != "amended":
            happened[grant.grant_id].append((kind, event.occurred_at))
        if event.tenant_id != grant.tenant_id:
            found.append(f"{kind} of {grant.grant_id} is in the stream of {event.tenant_id}")
    for grant in books.grants.values():
        told, owed = happened[grant.grant_id], _owed_events(grant)
        is_cut = grant.tenant_id in books.trimmed and owed[len(owed) - len(told) :] == told
        if told != owed and not is_cut:
            found.append(f"events of {grant.grant_id} are {told}, should be {owed}")
    return found


def audit_committed(books: Books) -> list[str]:
    """P5. The records of a grant are, hour by hour and to the millisecond, slots times time, as far as its mark says;
    so once it is metered out they add up to its slots times its term (R38..R42). They are the grantee's."""
    found = []
    recorded: dict[str, dict[int, int]] = defaultdict(dict)
    for record in books.slot_records:
        hours = recorded[record.grant_id]
        if record.hour_start in hours:
            found.append(f"{record.grant_id} has two records of hour {record.hour_start}")
        hours[record.hour_start] = record.quantity_ms
        if record.tenant_id != books.grants[record.grant_id].tenant_id:
            found.append(f"slots of {record.grant_id} are on record for {record.tenant_id}")
    for grant in books.grants.values():
        owed = committed_by_hour(grant, until=books.metered_through[grant.grant_id])
        for hour in sorted(owed.keys() | recorded[grant.grant_id].keys()):
            written = recorded[grant.grant_id].get(hour, 0)
            if written != owed.get(hour, 0):
                found.append(
                    f"hour {hour} of {grant.grant_id} has {written} slot-ms on record, not {owed.get(hour, 0)}"
                )
    return found


def audit_used(books: Books) -> list[str]:
    """P6. In no hour is more on record as used inside a grant than as committed by it."""
    committed: Counter[tuple[str, int]] = Counter()
    for record in books.slot_records:
        committed[record.grant_id, record.hour_start] += record.quantity_ms
    return [
        f"{used} instance-ms are on record in {where[0]} in hour {where[1]}, and {committed[where]} slot-ms committed"
        for where, used in books.used_in_grants.items()
        if used > committed[where]
    ]


def audit_segments(books: Books) -> list[str]:
    """P7. The segments of an instance are numbered without a gap, do not overlap, and one is open just while it runs: here,
    and at all reservations that it has been at together."""
    found = []
    segments: dict[str, list[AuditedSegment]] = defaultdict(list)
    for each in [*books.segments, *books.elsewhere]:
        segments[each.instance_id].append(each)
    for instance in books.instances.values():
        mine = sorted((each.segment for each in segments[instance.instance_id]), key=lambda segment: segment.number)
        name = instance.instance_id
        count = len(mine) if instance.moved_to else instance.segment_count
        if [segment.number for segment in mine] != list(range(count)):
            found.append(f"{name} has the segments {[segment.number for segment in mine]}")
        spans = [(segment.from_at, ENDLESS if segment.to_at is None else segment.to_at) for segment in mine]
        found += [f"{name} is billed from {since} to {until}" for since, until in spans if until < since]
        for (_, until), (since, _) in pairwise(spans):
            if since < until:
                found.append(f"{name} is billed twice from {since} on")
        is_open = bool(spans) and spans[-1][1] == ENDLESS
        if instance.moved_to is None and is_open != (instance.run_state is RunState.RUNNING):
            found.append(f"{name} is {instance.run_state} and its last segment is {'open' if is_open else 'closed'}")
    return found


def audit_promises(books: Books) -> list[str]:
    """P9. At no instant do the grants that are not cancelled add up to more than the total.

    Rows keep no former totals: a reservation whose total has changed is passed over.
    """
    if books.head.total_seq > 0:
        return []
    return [
        f"{granted} slots are granted at {moment.at} of {books.head.total}"
        for moment in moments(books)
        if (granted := sum(moment.live.values())) > books.head.total
    ]


def audit_meters(books: Books) -> list[str]:
    """R44. What is on record of an instance is, meter by meter, its running time up to its segments' marks: nothing
    twice, nothing lost."""
    run: Counter[tuple[str, str]] = Counter()
    for each in books.segments:
        if each.segment.mode in METERS:
            run[each.instance_id, METERS[each.segment.mode]] += max(0, each.metered_through - each.segment.from_at)
    return [
        f"{where[0]} has {books.used_by_instances.get(where, 0)} ms on record of {where[1]}, and ran {run[where]}"
        for where in sorted(run.keys() | books.used_by_instances.keys())
        if run[where] != books.used_by_instances.get(where, 0)
    ]


STANDING: Final[Mapping[str, Check]] = {
    "P1": audit_members,
    "P2": audit_free,
    "P4": audit_events,
    "P5": audit_committed,
    "P6": audit_used,
    "P7": audit_segments,
    "P9": audit_promises,
    "R44": audit_meters,
}
"""What holds in any database at any moment."""


# -- what is known of a replay besides ---------------------------------------------------------------------------------


def audit_placements(books: Books) -> list[str]:
    """P8, R25. Every ordinary placement found F at 1 at least, so that F is not negative after the last one of its
    instant, and U was within the total after any placement. That F falls by one for an ordinary placement, and not for
    one inside a grant, follows from the closed form that P2 holds against the same segments.

    Rows do not tell a placed instance from an attached one, for which there need be no room (R59), nor what the total
    was before: so this holds where nothing was attached, the total never changed and no term began in the past.
    """
    found = []
    placed: dict[int, Counter[Mode]] = defaultdict(Counter)
    for each in books.segments:
        if each.segment.number == 0 and each.segment.from_at != each.segment.to_at:
            placed[each.segment.from_at][each.segment.mode] += 1
        if each.segment.number == 0 and each.segment.mode not in (Mode.RESERVED, Mode.GRANT):
            found.append(f"{each.instance_id} was placed at {each.segment.from_at}, billed {each.segment.mode}")
    total = books.head.total
    for moment in past_moments(books):
        new = placed.get(moment.at, Counter())
        free = total - moment.outside - sum(moment.live.values())
        in_use = moment.outside + sum(moment.inside.values())
        if new[Mode.RESERVED] and free < 0:
            found.append(f"{new[Mode.RESERVED]} instances took ordinary slots at {moment.at}, and F is {free}")
        if new and in_use > total:
            found.append(f"instances were placed at {moment.at}, and {in_use} of {total} slots are in use")
    return found


def audit_idle(books: Books) -> list[str]:
    """R38, once everything is metered: what a grant committed is, to the millisecond, what was used inside it and what
    lay idle; records on one side, on the other the running time as segments tell it."""
    committed: Counter[str] = Counter()
    for record in books.slot_records:
        committed[record.grant_id] += record.quantity_ms
    used: Counter[str] = Counter()
    for (grant_id, _), quantity_ms in books.used_in_grants.items():
        used[grant_id] += quantity_ms
    idle = idle_by_grant(books)
    return [
        f"{grant_id} committed {committed[grant_id]} slot-ms; {used[grant_id]} used and {idle[grant_id]} idle"
        for grant_id in books.grants
        if committed[grant_id] != used[grant_id] + idle[grant_id]
    ]


def audit_metered_out(books: Books) -> list[str]:
    """R40. After a pass of the meter beyond the end of everything, nothing is owed any more."""
    found = [
        f"{grant.grant_id} is metered to {books.metered_through[grant.grant_id]} of {grant.ends_at}"
        for grant in books.grants.values()
        if grant.cancelled_at is None and books.metered_through[grant.grant_id] < grant.ends_at > grant.starts_at
    ]
    return found + [
        f"{each.instance_id} is metered to {each.metered_through} of {each.segment.to_at}"
        for each in books.segments
        if each.segment.to_at not in (each.metered_through, each.segment.from_at)
    ]


OF_A_REPLAY: Final[Mapping[str, Check]] = {
    **STANDING,
    "P8": audit_placements,
    "R38": audit_idle,
    "R40": audit_metered_out,
}
"""What holds besides after a replay: a fresh database, one total, nothing attached, everything over and metered."""


def _misfit(instance: Instance, grant: Grant | None) -> list[str]:
    if grant is None:
        return [f"{instance.instance_id} is in a grant that there is not"]
    if instance.tenant_id != grant.tenant_id:
        return [f"{instance.instance_id} of {instance.tenant_id} is in {grant.grant_id} of {grant.tenant_id}"]
    if grant.project_id not in (None, instance.project_id):
        return [f"{instance.instance_id} of {instance.project_id} is in {grant.grant_id} for {grant.project_id}"]
    return []


def _owed_events(grant: Grant) -> list[tuple[str, int]]:
    """R17, by the row."""
    owed = [("created", grant.created_at)]
    if grant.cancelled_at is not None:
        return [*owed, ("cancelled", grant.cancelled_at)]
    if grant.started_applied:
        owed.append(("active", grant.starts_at))
    return [*owed, ("ended", grant.ends_at)] if grant.ended_applied else owed
