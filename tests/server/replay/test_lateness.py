from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from server.replay.lateness import Granting, Placed, Placing, RunLog, audit_lateness
from server.replay.openb import Replayed


def log_of(replayed: Replayed, steps: list[tuple[int, Any]] | None = None) -> RunLog:
    """Deciding again changes the reservation's books and the log's own nothing, so the head is a copy."""
    log = replayed.drive.log
    return RunLog(
        reservation=copy.copy(log.reservation), around=log.around, steps=list(log.steps) if steps is None else steps
    )


def test_deciding_late_comes_to_the_same(replayed: Replayed) -> None:
    assert audit_lateness(log_of(replayed), replayed.books) == []


def test_the_same_log_can_be_decided_again_and_again(replayed: Replayed) -> None:
    log = log_of(replayed)
    assert audit_lateness(log, replayed.books) == audit_lateness(log, replayed.books) == []


def test_a_placement_that_was_refused_in_time_is_told(replayed: Replayed) -> None:
    steps = list(replayed.drive.log.steps)
    index = next(
        index for index, (_, step) in enumerate(steps) if isinstance(step, Placing) and step.placed[0].instance_id
    )
    at, step = steps[index]
    assert isinstance(step, Placing)
    steps[index] = (at, replace(step, placed=(Placed(instance_id=None),)))
    found = audit_lateness(log_of(replayed, steps), replayed.books)
    assert any(f"at {at} an instance of {step.tenant_id} came to refused, late to " in violation for violation in found)


def test_a_grant_that_was_refused_in_time_is_told(replayed: Replayed) -> None:
    steps = list(replayed.drive.log.steps)
    index = next(index for index, (_, step) in enumerate(steps) if isinstance(step, Granting) and step.was_made)
    at, step = steps[index]
    assert isinstance(step, Granting)
    steps[index] = (at, replace(step, was_made=False))
    found = audit_lateness(log_of(replayed, steps), replayed.books)
    assert found == [f"at {at} a grant was refused, late it is not"]


def test_segments_and_events_that_differ_are_told(replayed: Replayed) -> None:
    books = replace(replayed.books, segments=replayed.books.segments[1:], events=replayed.books.events[1:])
    found = audit_lateness(log_of(replayed), books)
    assert [violation.partition(":")[0] for violation in found] == [
        "segment only when decided late",
        "event only when decided late",
    ]


def test_many_differences_are_counted_and_not_all_put_in_words(replayed: Replayed) -> None:
    found = audit_lateness(log_of(replayed), replace(replayed.books, segments=[]))
    assert len(found) == 21
    assert found[-1] == f"{len(replayed.books.segments) - 20} more: segment only when decided late"
