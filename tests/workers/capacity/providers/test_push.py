"""What an agent pushes: translated whole, or refused with the field that is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import InvalidInput
from workers.capacity.providers.protocol import PROBLEMS_MAX, ProviderAccountConfig
from workers.capacity.providers.push import PUSHED_MAX, PushProvider, report_from_push

ONE = ReportedReservation(reservation_id="rack-7/h100", flavor="h100-8x", region="eu-west", total=16, in_use=4)
TWO = replace(ONE, reservation_id="rack-8/h100", in_use=None, ready=False)


def test_a_pushed_report_is_a_complete_look() -> None:
    assert report_from_push([ONE, TWO]) == ScanReport(reservations=(ONE, TWO), complete=True)


def test_an_empty_report_says_that_nothing_is_left() -> None:
    assert report_from_push([]) == ScanReport(reservations=(), complete=True)


def test_an_agent_that_could_not_see_everything_says_so() -> None:
    assert report_from_push([ONE], complete=False, problems=["zone b\nis down"]) == ScanReport(
        reservations=(ONE,), complete=False, problems=("zone b is down",)
    )


def test_an_incomplete_report_without_a_reason_gets_one() -> None:
    report = report_from_push([ONE], complete=False)

    assert isinstance(report, ScanReport)
    assert report.problems == ("the agent says that it could not see everything",)


def test_the_problems_of_an_agent_are_bounded() -> None:
    report = report_from_push([], complete=False, problems=["x" * 10_000] * 1_000)

    assert isinstance(report, ScanReport)
    assert len(report.problems) == PROBLEMS_MAX
    assert max(len(problem) for problem in report.problems) == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reservation_id": ""}, "reservationId"),
        ({"reservation_id": "a b"}, "reservationId"),
        ({"reservation_id": "x" * 301}, "reservationId"),
        ({"reservation_id": "rack-8\n"}, "reservationId"),
        ({"flavor": "h100 8x"}, "flavor"),
        ({"region": ""}, "region"),
        ({"total": -1}, "total"),
        ({"total": True}, "total"),
        ({"total": 2**31}, "total"),
        ({"in_use": -1}, "inUse"),
        ({"in_use": False}, "inUse"),
        ({"ready": None}, "ready"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    refusal = report_from_push([ONE, replace(TWO, **change)])

    assert isinstance(refusal, InvalidInput)
    assert refusal.field == f"reservations[1].{field}"
    assert refusal.message.startswith(f"reservations[1].{field} must be ")


def test_an_id_given_twice_is_refused_with_its_field() -> None:
    refusal = report_from_push([ONE, TWO, replace(ONE, total=3)])

    assert refusal == InvalidInput(
        field="reservations[2].reservationId",
        message="reservations[2].reservationId is the same as of reservations[0]",
        reason="duplicate",
    )


def test_a_wrong_value_comes_before_an_id_given_twice() -> None:
    refusal = report_from_push([ONE, ONE, replace(TWO, total=-1)])

    assert isinstance(refusal, InvalidInput)
    assert refusal.field == "reservations[2].total"


def test_a_list_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    refusal = report_from_push([replace(ONE, total=-1)] * (PUSHED_MAX + 1))

    assert isinstance(refusal, InvalidInput)
    assert (refusal.field, refusal.reason) == ("reservations", "too-many")


def test_a_list_of_the_greatest_length_is_taken() -> None:
    report = report_from_push([replace(ONE, reservation_id=f"r{n}") for n in range(PUSHED_MAX)])

    assert isinstance(report, ScanReport)
    assert len(report.reservations) == PUSHED_MAX


async def test_a_push_account_is_not_scanned() -> None:
    provider = PushProvider()
    report = await provider.scan(ProviderAccountConfig(account_id="pacct_1", kind="push", settings={}))

    assert not provider.scans
    assert (report.reservations, report.complete) == ((), False)


def test_a_push_account_has_no_settings() -> None:
    refusal = PushProvider().validate_settings({"path": "x"})

    assert PushProvider().validate_settings({}) is None
    assert refusal is not None
    assert (refusal.field, refusal.reason) == ("settings.path", "unknown-key")
