from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from domain.terms import HOUR_MS
from server.replay.drive import BEGINS_AT
from server.replay.openb import OpenbOptions, Replayed, replay, report, run
from server.replay.report import INVARIANTS
from server.replay.trace import TraceError
from server.replay.world import ReplayError
from tests.conftest import MakeDatabase
from tests.server.replay.conftest import SLOTS
from tests.server.replay.naive import play
from tests.server.replay.small_trace import HOUR_S, line, write_trace


def test_every_invariant_holds(replayed: Replayed) -> None:
    assert report(replayed).violations == []


def test_every_gpu_asked_for_is_placed_or_refused(replayed: Replayed) -> None:
    tallies = report(replayed).tallies.values()
    assert sum(tally.asked for tally in tallies) == replayed.drive.trace.gpus
    assert sum(tally.in_grant + tally.ordinary for tally in tallies) == len(replayed.books.instances)


def test_everything_that_can_happen_does(replayed: Replayed) -> None:
    tallies = report(replayed).tallies
    for what in ("in_grant", "ordinary", "refused", "adopted", "handed_over", "let_go"):
        assert sum(getattr(tally, what) for tally in tallies.values()) > 0, what
    for what in ("grants_made", "grants_refused", "grants_cut", "grants_cancelled"):
        assert sum(getattr(tally, what) for tally in tallies.values()) > 0, what


def test_what_is_committed_is_used_or_idle_to_the_millisecond(replayed: Replayed) -> None:
    for tally in report(replayed).tallies.values():
        assert tally.committed_ms == tally.used_ms + tally.idle_ms
        assert 0 <= tally.used_ms <= tally.committed_ms


def test_the_naive_model_of_the_rules_comes_to_the_same(replayed: Replayed) -> None:
    expected = play(replayed.drive.trace, slots=SLOTS)
    found = {}
    for tenant_id, tally in report(replayed).tallies.items():
        found[tenant_id] = Counter(
            in_grant=tally.in_grant,
            ordinary=tally.ordinary,
            refused=tally.refused,
            grants_made=tally.grants_made,
            grants_refused=tally.grants_refused,
            used_ms=tally.used_ms,
            ordinary_ms=tally.ordinary_ms,
        )
    assert found == expected


async def test_one_pod_alone_is_counted_by_hand(make_database: MakeDatabase, tmp_path: Path) -> None:
    """On ten slots LS is promised four at once; the pod runs in one of them from 2:00 to 10:00, where the trace ends."""
    path = write_trace(tmp_path / "pods.csv", [line("only", "LS", 2 * HOUR_S, 10 * HOUR_S)])
    done = await run(await make_database(), path, options=OpenbOptions(slots=10))
    assert done.violations == []
    tally = done.tallies["qos-ls"]
    assert (tally.in_grant, tally.ordinary, tally.refused) == (1, 0, 0)
    assert (tally.committed_ms, tally.used_ms, tally.idle_ms) == (40 * HOUR_MS, 8 * HOUR_MS, 32 * HOUR_MS)
    assert (tally.grants_made, tally.grants_cut, tally.grants_cancelled) == (3, 1, 2)
    assert done.decisions == 2 + 3 + 3


async def test_a_pod_of_several_gpus_takes_what_there_is(make_database: MakeDatabase, tmp_path: Path) -> None:
    rows = [line("many", "Other", HOUR_S, 2 * HOUR_S, gpus=5)]
    done = await run(await make_database(), write_trace(tmp_path / "pods.csv", rows), options=OpenbOptions(slots=3))
    tally = done.tallies["qos-other"]
    assert (tally.in_grant, tally.ordinary, tally.refused, tally.ordinary_ms) == (0, 3, 2, 3 * HOUR_MS)
    assert done.violations == []


async def test_a_slot_is_free_at_the_instant_of_its_deletion(make_database: MakeDatabase, tmp_path: Path) -> None:
    rows = [line("first", "Other", 0, HOUR_S), line("second", "Other", HOUR_S, 2 * HOUR_S)]
    done = await run(await make_database(), write_trace(tmp_path / "pods.csv", rows), options=OpenbOptions(slots=1))
    assert (done.tallies["qos-other"].ordinary, done.tallies["qos-other"].refused) == (2, 0)


async def test_pods_of_one_instant_only_leave_nothing_behind(make_database: MakeDatabase, tmp_path: Path) -> None:
    rows = [line("now", "LS", 0, 0), line("also-now", "BE", 0, 0)]
    done = await run(await make_database(), write_trace(tmp_path / "pods.csv", rows), options=OpenbOptions(slots=10))
    assert done.violations == []
    assert sum(tally.committed_ms for tally in done.tallies.values()) == 0


async def test_two_runs_come_to_the_same(make_database: MakeDatabase, small_trace: Path, replayed: Replayed) -> None:
    again = report(await replay(await make_database(), small_trace, options=OpenbOptions(slots=SLOTS)))
    first = report(replayed)
    assert again.tallies == first.tallies
    assert again.decisions == first.decisions


async def test_how_often_the_meter_passes_changes_no_quantity(
    make_database: MakeDatabase, small_trace: Path, replayed: Replayed
) -> None:
    options = OpenbOptions(slots=SLOTS, meter_hours=24 * 9)
    rarely = report(await replay(await make_database(), small_trace, options=options))
    assert rarely.tallies == report(replayed).tallies
    assert rarely.passes["meter"].passes < report(replayed).passes["meter"].passes
    assert rarely.violations == []


async def test_progress_counts_creations_and_deletions_up_to_all(make_database: MakeDatabase, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 0, 60), line("b", "LS", 30, 90)])
    seen: list[tuple[int, int]] = []
    await run(
        await make_database(),
        path,
        options=OpenbOptions(slots=10),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (4, 4)
    assert {total for _, total in seen} == {4}


async def test_a_database_that_is_in_use_is_left_alone(
    replayed_url: str, replayed: Replayed, small_trace: Path
) -> None:
    assert replayed.books.instances
    with pytest.raises(ReplayError, match="is the database a fresh one"):
        await run(replayed_url, small_trace, options=OpenbOptions(slots=SLOTS))


async def test_a_malformed_trace_is_refused_before_anything_is_written(database_url: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 0, "soon")])
    with pytest.raises(TraceError, match="line 2, column deletion_time"):
        await run(database_url, path, options=OpenbOptions(slots=10))


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"slots": 100_001}, {"term_days": 0}, {"meter_hours": 0}, {"limit": 0}]
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must be|has 1 to"):
        OpenbOptions(**wrong)


def test_the_table_shows_every_tenant_and_every_invariant(replayed: Replayed) -> None:
    table = report(replayed).table()
    for words in ("qos-ls", "qos-be", "utilisation", "decisions", "37 pods", *(f"{name} ok" for name in INVARIANTS)):
        assert words in table
    assert "FAIL" not in table


def test_the_report_is_plain_json(replayed: Replayed) -> None:
    told = json.loads(json.dumps(report(replayed).as_json()))
    assert told["violations"] == []
    assert told["total"]["asked"] == replayed.drive.trace.gpus
    assert told["trace"]["goneAtOnce"] == 2
    assert told["spanMs"] == replayed.drive.ends_at - BEGINS_AT
    assert told["total"]["committedMs"] == sum(tenant["committedMs"] for tenant in told["tenants"].values())
