"""Ids sort by creation and never repeat."""

from __future__ import annotations

from domain.identity import EVENT_ID
from workers.clock import DatabaseClock, ManualClock
from workers.ids import IdSource


def test_ids_of_one_millisecond_sort_by_creation_and_differ() -> None:
    ids = IdSource(ManualClock(1_800_000_000_000))
    made = [ids.new("evt") for _ in range(300_000)]
    assert made == sorted(set(made))


def test_ids_sort_by_creation_when_time_goes_on_and_when_it_goes_back() -> None:
    clock = ManualClock(1_800_000_000_000)
    ids, made = IdSource(clock), []
    for step in (1, 5, -1_000, 2, 10_000, -3):
        made += [ids.new("evt") for _ in range(100)]
        clock.advance(step)
    assert made == sorted(set(made))


def test_an_id_has_the_grammar_of_ids_and_shares_little_with_the_next_source() -> None:
    one, other = IdSource(DatabaseClock()).new("evt"), IdSource(DatabaseClock()).new("evt")
    assert EVENT_ID.fullmatch(one)
    assert len(one) == len("evt_") + 26
    assert one[-16:] != other[-16:]
