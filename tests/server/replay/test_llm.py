"""The llm replay through the desks, on the tests' own sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.replay.llm import LlmOptions, run
from server.replay.llm_agents import LlmTally
from server.replay.llm_report import INVARIANTS, LlmReport
from server.replay.llm_trace import read_requests
from server.replay.trace import TraceError
from tests.conftest import MakeDatabase
from tests.server.replay.llm_sample import write, write_traces


@pytest.mark.parametrize("concurrency", [1, 16])
async def test_everything_that_can_happen_does_and_every_invariant_holds(
    make_database: MakeDatabase, tmp_path: Path, concurrency: int
) -> None:
    options = LlmOptions(concurrency=concurrency)
    done = await run(await make_database(), write_traces(tmp_path), options=options)
    assert done.violations == []
    total = done.tallies["all"]
    assert total.allowed + total.denied == 360
    assert total.committed + total.released + total.too_late + total.left == total.allowed
    assert total.recovered == total.too_late
    for what in ("capped", "denied", "in_grace", "refused", "extended", "released", "too_late", "left"):
        assert getattr(total, what) > 0, what
    assert all(balance.reserved == 0 for balance in done.ledger)
    assert len(done.ledger) == 1 + 6


async def test_one_request_alone_is_counted_by_hand(make_database: MakeDatabase, tmp_path: Path) -> None:
    """Strict, with 110 % of what it needs in six parts: far less than its estimate, so it is denied."""
    path = write(tmp_path / "only_conv.csv", ["2023-11-16 18:00:00,300,100"])
    done = await run(await make_database(), path, options=LlmOptions(budget_percent=200))
    assert done.tallies["conv/strict"] == LlmTally(denied=1)
    assert done.denials == {"BUDGET_EXCEEDED": 1}
    assert {balance.scope_path: balance.allocated for balance in done.ledger}["tenant:llm"] == 800


def test_the_table_marks_what_does_not_hold() -> None:
    report = LlmReport(
        requests=1,
        span_ms=0,
        concurrency=1,
        tallies={"all": LlmTally()},
        denials={},
        ledger=(),
        latencies={},
        wall_ms=1,
        violations=["I2 reserved is the sum of the active holds: tenant:llm"],
    )
    assert {"I1", "I2", "I3", "I4", "I5"} <= set(INVARIANTS)
    assert "I1 ok  I2 FAIL  I3 ok" in report.table()


def test_files_of_a_folder_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    requests = read_requests(write_traces(tmp_path))
    assert len(requests) == 360
    assert [each.came_at for each in requests] == sorted(each.came_at for each in requests)
    assert {each.app for each in requests} == {"code", "conv"}
    assert requests[0].came_at == 1_700_157_600_500


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("yesterday,1,1", "TIMESTAMP"),
        ("2023-13-16 18:00:00,1,1", "TIMESTAMP"),
        ("2023-11-16 18:00:00,-1,1", "ContextTokens"),
        ("2023-11-16 18:00:00,1,1.5", "GeneratedTokens"),
    ],
)
def test_a_malformed_line_is_refused_with_its_column(tmp_path: Path, line: str, column: str) -> None:
    with pytest.raises(TraceError, match=f"line 2, column {column}"):
        read_requests(write(tmp_path / "a_conv.csv", [line]))


def test_a_missing_column_and_an_empty_trace_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="GeneratedTokens"):
        read_requests(write(tmp_path / "a_conv.csv", [], header="TIMESTAMP,ContextTokens"))
    with pytest.raises(TraceError, match="no request"):
        read_requests(write(tmp_path / "b_conv.csv", []))


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"budget_percent": -1}, {"limit": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LlmOptions(**wrong)
