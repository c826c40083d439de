"""Each check is shown books in which just its invariant is broken, and must say so; on the true books all are silent."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.capacity.state import Billing, Grant, Mode, RunState
from domain.terms import HOUR_MS
from server.replay.audit import OF_A_REPLAY, STANDING, audit_books, audit_database
from server.replay.openb import OpenbOptions, Replayed, run
from storage.capacity.audit import AuditedSegment, Books
from storage.database import Database, connect
from tests.conftest import MakeDatabase
from tests.server.replay.small_trace import HOUR_S, line, write_trace

Tamper = Callable[[Books], Books]


def with_grant(books: Books, grant: Grant, **changes: Any) -> Books:
    changed = copy.copy(grant)
    for name, value in changes.items():
        setattr(changed, name, value)
    return replace(books, grants={**books.grants, grant.grant_id: changed})


def with_segment(books: Books, index: int, **changes: Any) -> Books:
    each = books.segments[index]
    segment = copy.copy(each.segment)
    for name, value in changes.items():
        setattr(segment, name, value)
    segments = list(books.segments)
    segments[index] = replace(each, segment=segment)
    return replace(books, segments=segments)


def with_instance(books: Books, instance_id: str, **changes: Any) -> Books:
    changed = copy.copy(books.instances[instance_id])
    for name, value in changes.items():
        setattr(changed, name, value)
    return replace(books, instances={**books.instances, instance_id: changed})


def index_of(books: Books, fits: Callable[[AuditedSegment], bool]) -> int:
    return next(index for index, each in enumerate(books.segments) if fits(each))


def in_grant(each: AuditedSegment) -> bool:
    return each.segment.mode is Mode.GRANT


def fullest(books: Books) -> Grant:
    """A grant of several slots that were all used."""
    return next(grant for grant in books.grants.values() if grant.slots == 3 and grant.started_applied)


def ended(books: Books) -> Grant:
    return next(grant for grant in books.grants.values() if grant.ended_applied)


# -- P1 ----------------------------------------------------------------------------------------------------------------


def more_run_than_slots(books: Books) -> Books:
    grant = fullest(books)
    return with_grant(books, grant, slots=2, commitments=((grant.starts_at, 2),))


def of_another_tenant(books: Books) -> Books:
    inside = books.segments[index_of(books, in_grant)]
    return with_instance(books, inside.instance_id, tenant_id="somebody-else")


def of_another_project(books: Books) -> Books:
    restricted = {grant.grant_id for grant in books.grants.values() if grant.project_id is not None}
    inside = index_of(books, lambda each: each.segment.grant_id in restricted)
    return with_segment(books, inside, project_id="prj_another")


def in_a_grant_and_billed_to_nobody(books: Books) -> Books:
    instance_id = next(iter(books.instances))
    grant = next(g for g in books.grants.values() if g.tenant_id == books.instances[instance_id].tenant_id)
    return with_instance(books, instance_id, grant_id=grant.grant_id, billing=Billing.NONE, run_state=RunState.STOPPED)


def more_held_than_slots(books: Books) -> Books:
    grant = next(grant for grant in books.grants.values() if grant.slots == 1 and grant.tenant_id == "qos-be")
    for instance in books.instances.values():
        if instance.tenant_id == grant.tenant_id:
            books = with_instance(books, instance.instance_id, grant_id=grant.grant_id, run_state=RunState.STOPPED)
    return books


def in_a_grant_that_there_is_not(books: Books) -> Books:
    return with_segment(books, index_of(books, in_grant), grant_id="rgrant_unknown")


# -- P2 ----------------------------------------------------------------------------------------------------------------


def still_inside_after_the_end(books: Books) -> Books:
    index = index_of(books, lambda each: in_grant(each) and each.segment.to_at == each_end(books, each))
    to_at = books.segments[index].segment.to_at
    assert to_at is not None
    return with_segment(books, index, to_at=to_at + HOUR_MS)


def each_end(books: Books, each: AuditedSegment) -> int:
    assert each.segment.grant_id is not None
    grant = books.grants[each.segment.grant_id]
    return grant.ends_at if grant.ends_at < books.at - HOUR_MS else -1


def one_slot_counted_twice(books: Books) -> Books:
    return replace(books, free=books.free - 1)


# -- P4 ----------------------------------------------------------------------------------------------------------------


def an_event_lost(books: Books) -> Books:
    return replace(books, events=[event for event in books.events if not event.type.endswith(".active")])


def an_event_told_twice(books: Books) -> Books:
    return replace(books, events=[*books.events, books.events[0]])


def events_in_the_wrong_order(books: Books) -> Books:
    return replace(books, events=list(reversed(books.events)))


def an_event_at_another_instant(books: Books) -> Books:
    late = replace(books.events[-1], occurred_at=books.events[-1].occurred_at + 1)
    return replace(books, events=[*books.events[:-1], late])


def an_event_in_another_stream(books: Books) -> Books:
    return replace(books, events=[replace(books.events[0], tenant_id="qos-other"), *books.events[1:]])


# -- P5, P6, P7 --------------------------------------------------------------------------------------------------------


def a_record_too_large(books: Books) -> Books:
    first, *others = books.slot_records
    return replace(books, slot_records=[replace(first, quantity_ms=first.quantity_ms + 1), *others])


def a_record_lost(books: Books) -> Books:
    return replace(books, slot_records=books.slot_records[1:])


def a_record_written_twice(books: Books) -> Books:
    return replace(books, slot_records=[*books.slot_records, books.slot_records[0]])


def a_record_for_somebody_else(books: Books) -> Books:
    first, *others = books.slot_records
    return replace(books, slot_records=[replace(first, tenant_id="qos-other"), *others])


def more_used_than_committed(books: Books) -> Books:
    where = next(iter(books.used_in_grants))
    return replace(books, used_in_grants={**books.used_in_grants, where: 4 * HOUR_MS})


def billed_twice(books: Books) -> Books:
    index = index_of(books, lambda each: each.segment.number > 0)
    return with_segment(books, index, from_at=books.segments[index].segment.from_at - 1)


def a_segment_lost(books: Books) -> Books:
    index = index_of(books, lambda each: each.segment.number > 0)
    return replace(books, segments=[*books.segments[: index - 1], *books.segments[index:]])


def running_for_ever(books: Books) -> Books:
    last = max(index for index, each in enumerate(books.segments) if each.segment.number > 0)
    return with_segment(books, last, to_at=None)


def ended_before_it_began(books: Books) -> Books:
    return with_segment(books, 0, to_at=books.segments[0].segment.from_at - 1)


# -- P8, P9, and what follows from the rules besides -------------------------------------------------------------------


def a_smaller_reservation(books: Books) -> Books:
    head = copy.copy(books.head)
    head.total = 6
    return replace(books, head=head, free=books.free - 1)


def an_instance_placed_on_demand(books: Books) -> Books:
    return with_segment(books, index_of(books, lambda each: each.segment.mode is Mode.RESERVED), mode=Mode.ONDEMAND)


def an_hour_not_on_record(books: Books) -> Books:
    (where, quantity_ms), *others = books.used_by_instances.items()
    return replace(books, used_by_instances={**dict(others), where: quantity_ms - 1})


def used_less_than_it_ran(books: Books) -> Books:
    where = next(where for where, used_ms in books.used_in_grants.items() if used_ms > 0)
    return replace(books, used_in_grants={**books.used_in_grants, where: books.used_in_grants[where] - 1})


def not_metered_out(books: Books) -> Books:
    grant = ended(books)
    return replace(books, metered_through={**books.metered_through, grant.grant_id: grant.ends_at - 1})


BROKEN: Mapping[str, list[Tamper]] = {
    "P1": [
        more_run_than_slots,
        of_another_tenant,
        of_another_project,
        in_a_grant_and_billed_to_nobody,
        more_held_than_slots,
        in_a_grant_that_there_is_not,
    ],
    "P2": [still_inside_after_the_end, one_slot_counted_twice],
    "P4": [
        an_event_lost,
        an_event_told_twice,
        events_in_the_wrong_order,
        an_event_at_another_instant,
        an_event_in_another_stream,
    ],
    "P5": [a_record_too_large, a_record_lost, a_record_written_twice, a_record_for_somebody_else],
    "P6": [more_used_than_committed],
    "P7": [billed_twice, a_segment_lost, running_for_ever, ended_before_it_began],
    "P8": [a_smaller_reservation, an_instance_placed_on_demand],
    "P9": [a_smaller_reservation],
    "R38": [used_less_than_it_ran, a_record_lost],
    "R40": [not_metered_out],
    "R44": [an_hour_not_on_record],
}


def test_true_books_have_nothing_to_say(replayed: Replayed) -> None:
    assert audit_books(replayed.books, OF_A_REPLAY) == []


@pytest.mark.parametrize(
    ("invariant", "tamper"),
    [(invariant, tamper) for invariant, tampers in BROKEN.items() for tamper in tampers],
)
def test_a_broken_invariant_is_told_by_name(replayed: Replayed, invariant: str, tamper: Tamper) -> None:
    found = audit_books(tamper(replayed.books), OF_A_REPLAY)
    assert any(violation.startswith(f"{invariant}: ") for violation in found)


def test_every_check_was_shown_a_violation() -> None:
    assert OF_A_REPLAY.keys() == BROKEN.keys()


def test_a_stream_that_retention_has_cut_may_lack_its_first_events(replayed: Replayed) -> None:
    books = replayed.books
    tenant_id = books.events[0].tenant_id
    assert tenant_id is not None
    cut = replace(books, events=[event for event in books.events if not event.type.endswith(".created")])
    trimmed = frozenset(grant.tenant_id for grant in books.grants.values())
    assert audit_books(replace(cut, trimmed=trimmed), {"P4": STANDING["P4"]}) == []
    assert audit_books(replace(cut, trimmed=trimmed - {tenant_id}), {"P4": STANDING["P4"]}) != []


def test_a_total_that_has_changed_is_no_measure_of_old_promises(replayed: Replayed) -> None:
    books = a_smaller_reservation(replayed.books)
    books.head.total_seq = 1
    assert audit_books(books, {"P9": STANDING["P9"]}) == []


async def test_a_whole_database_is_held_against_its_rows(make_database: MakeDatabase, tmp_path: Path) -> None:
    url = await make_database()
    await run(url, write_trace(tmp_path / "pods.csv", [line("a", "LS", 0, 9 * HOUR_S)]), options=OpenbOptions(slots=10))
    database = await Database.open(url)
    try:
        assert await audit_database(database) == []
        connection = await connect(url)
        await connection.execute("update usage_record set quantity_ms = quantity_ms + 1")
        key = await connection.fetchval("select key from capacity_reservation")
        await connection.close()
        found = await audit_database(database)
    finally:
        await database.close()
    assert {violation.partition(": ")[0] for violation in found} == {key}
    assert {violation.split(": ")[1] for violation in found} == {"P5", "R44"}
