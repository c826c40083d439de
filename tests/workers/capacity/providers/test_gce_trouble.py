"""Compute Engine in trouble: whatever goes wrong, the report is incomplete and says why (R54, D12)."""

from __future__ import annotations

import asyncio
import gzip
import socket
import sys
import threading
from typing import Any

import pytest

from domain.capacity.scan import ScanReport
from tests.workers.capacity.providers.compute_server import (
    NO_RESULTS,
    PROJECT,
    Answer,
    ComputeServer,
    error,
    holding,
    page,
    reservation,
)
from workers.capacity.providers import gce_client
from workers.capacity.providers.gce import GceProvider
from workers.capacity.providers.protocol import RESERVATIONS_MAX, ProviderAccountConfig

ZONE = "zones/europe-west4-a"
GOOD = page({ZONE: holding(reservation("h100"))})
GOOD_ID = f"projects/{PROJECT}/{ZONE}/reservations/h100"
UNAVAILABLE = error(503, reason="backendError", message="The service is currently unavailable.")
QUOTA = error(429, reason="rateLimitExceeded", message="Quota exceeded.")
QUOTA_THE_OLD_WAY = error(403, reason="rateLimitExceeded", message="Rate Limit Exceeded")


def account(endpoint: str, **settings: Any) -> ProviderAccountConfig:
    return ProviderAccountConfig(
        account_id="pacct_01h0000000000000000000000a",
        kind="gce",
        settings={"project": PROJECT, "credentials": "anonymous", "apiEndpoint": endpoint, **settings},
    )


async def scan(compute: ComputeServer, *, scan_ms_max: int = 20_000, **settings: Any) -> ScanReport:
    return await GceProvider(scan_ms_max=scan_ms_max).scan(account(compute.address, **settings))


def ids(report: ScanReport) -> list[str]:
    return [found.reservation_id for found in report.reservations]


@pytest.mark.parametrize("passing", [UNAVAILABLE, QUOTA, QUOTA_THE_OLD_WAY], ids=["503", "429", "403 rate limit"])
async def test_a_passing_fault_is_tried_again(compute: ComputeServer, passing: Answer) -> None:
    compute.answers(passing, GOOD)

    report = await scan(compute)

    assert report.complete
    assert ids(report) == [GOOD_ID]
    assert len(compute.requests) == 2


async def test_a_passing_fault_on_a_later_page_repeats_that_page_only(compute: ComputeServer) -> None:
    compute.answers(
        page({ZONE: holding(reservation("one"))}, next_page="p2"),
        UNAVAILABLE,
        page({ZONE: holding(reservation("two"))}),
    )

    report = await scan(compute)

    assert report.complete
    assert len(report.reservations) == 2
    assert [request.query.get("pageToken") for request in compute.requests] == [None, "p2", "p2"]


async def test_a_fault_that_stays_ends_with_the_time_of_the_scan(compute: ComputeServer) -> None:
    compute.answers(UNAVAILABLE)

    report = await scan(compute, scan_ms_max=2_000)

    assert not report.complete
    assert "503" in report.problems[0]
    assert "The service is currently unavailable." in report.problems[0]


async def test_a_refusal_is_not_tried_again(compute: ComputeServer) -> None:
    compute.answers(error(403, reason="forbidden", message="Required 'compute.reservations.list' permission"))

    report = await scan(compute)

    assert report == ScanReport(
        reservations=(),
        complete=False,
        problems=("Compute Engine answered 403: Required 'compute.reservations.list' permission",),
    )
    assert len(compute.requests) == 1


async def test_a_failing_page_keeps_what_was_read_and_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(
        page({ZONE: holding(reservation("h100"))}, next_page="p2"),
        error(400, reason="invalid", message="Invalid value for field 'pageToken'"),
    )

    report = await scan(compute)

    assert not report.complete
    assert ids(report) == [GOOD_ID]
    assert report.problems == ("Compute Engine answered 400: Invalid value for field 'pageToken'",)


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        ({"unreachables": (f"projects/{PROJECT}/zones/us-east1-b",)}, "zones/us-east1-b could not be reached"),
        (
            {"warning": {"code": "PARTIAL_SUCCESS", "message": "some are missing"}},
            "the list: PARTIAL_SUCCESS: some are",
        ),
        (
            {"warning": {"code": "UNREACHABLE", "data": [{"key": "scope", "value": ZONE}]}},
            "the list: UNREACHABLE",
        ),
    ],
)
async def test_a_partial_answer_concludes_nothing(
    compute: ComputeServer, trouble: dict[str, Any], problem: str
) -> None:
    compute.answers(page({ZONE: holding(reservation("h100"))}, **trouble))

    report = await scan(compute)

    assert not report.complete
    assert ids(report) == [GOOD_ID]
    assert problem in report.problems[0]


async def test_trouble_on_an_early_page_is_not_forgotten_on_the_last(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: NO_RESULTS}, next_page="p2", unreachables=("zones/us-east1-b",)), GOOD)

    report = await scan(compute)

    assert not report.complete
    assert report.problems == ("zones/us-east1-b could not be reached",)


async def test_a_zone_with_a_warning_concludes_nothing(compute: ComputeServer) -> None:
    warning = {"code": "UNREACHABLE", "message": "The zone is down."}
    compute.answers(page({ZONE: holding(reservation("h100")), "zones/us-east1-b": {"warning": warning}}))

    report = await scan(compute)

    assert not report.complete
    assert report.problems == ("zones/us-east1-b: UNREACHABLE: The zone is down.",)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"specificReservation": {}}, "has no machine type or no count"),
        (
            {"specificReservation": {"instanceProperties": {"machineType": "n2-standard-8"}}},
            "has no machine type or no",
        ),
        (
            {"specificReservation": {"instanceProperties": {"machineType": "n2-standard-8"}, "count": "-1"}},
            "has a wrong value: total",
        ),
        ({"name": "Not a name"}, "has a wrong value: reservationId"),
        ({"specificReservation": None}, "is neither a specific nor an aggregate reservation"),
    ],
)
async def test_a_reservation_that_makes_no_sense_concludes_nothing(
    compute: ComputeServer, changed: dict[str, Any], problem: str
) -> None:
    compute.answers(page({ZONE: holding(reservation("h100"), {**reservation("odd"), **changed})}))

    report = await scan(compute)

    assert not report.complete
    assert ids(report) == [GOOD_ID]
    assert problem in report.problems[0]


async def test_a_reservation_outside_of_a_zone_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: NO_RESULTS, "regions/europe-west4": holding(reservation("h100"))}))

    report = await scan(compute)

    assert report.problems == ("regions/europe-west4: h100 is not in a zone",)


async def test_the_same_reservation_on_two_pages_is_one(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: holding(reservation("h100"))}, next_page="p2"), GOOD)

    report = await scan(compute)

    assert report.complete
    assert ids(report) == [GOOD_ID]


async def test_a_reservation_that_changed_between_two_pages_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: holding(reservation("h100", count="9"))}, next_page="p2"), GOOD)

    report = await scan(compute)

    assert report.problems == (f"{GOOD_ID} changed between two pages",)
    assert not report.complete


async def test_a_list_that_repeats_itself_ends(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: NO_RESULTS}, next_page="again"))

    report = await scan(compute)

    assert report.problems == ("the list repeats itself",)
    assert not report.complete
    assert len(compute.requests) == 2


async def test_a_list_without_end_ends(compute: ComputeServer) -> None:
    compute.answers(*(page({ZONE: NO_RESULTS}, next_page=f"p{n}") for n in range(gce_client.PAGES_MAX + 1)))

    report = await scan(compute, scan_ms_max=60_000)

    assert report.problems == (f"the list has more than {gce_client.PAGES_MAX} pages",)
    assert not report.complete
    assert len(compute.requests) == gce_client.PAGES_MAX


async def test_more_reservations_than_a_report_holds_conclude_nothing(compute: ComputeServer) -> None:
    compute.answers(page({ZONE: holding(*(reservation(f"r{n}") for n in range(RESERVATIONS_MAX + 1)))}))

    report = await scan(compute)

    assert report.problems == (f"the account has more than {RESERVATIONS_MAX} reservations",)
    assert not report.complete
    assert len(report.reservations) == RESERVATIONS_MAX


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"items": {"zones/a', b'{"items": 3}', b"\xff\xfe"])
async def test_an_answer_that_is_not_the_documented_json_concludes_nothing(compute: ComputeServer, body: bytes) -> None:
    compute.answers(Answer(body=body))

    report = await scan(compute)

    assert report.problems == ("the answer is not the JSON that Compute Engine documents",)
    assert not report.complete


@pytest.mark.parametrize("body", [b"[]", b"<html>secret of the intranet</html>", b'{"error": "no"}'])
async def test_an_error_that_is_not_google_s_is_told_by_its_number_alone(compute: ComputeServer, body: bytes) -> None:
    compute.answers(Answer(status=500, body=body))

    report = await scan(compute)

    assert not report.complete
    assert report.problems[0].startswith(("Compute Engine answered 500", "the client failed"))
    assert "secret" not in report.problems[0]


async def test_a_huge_answer_is_not_read_to_its_end(compute: ComputeServer) -> None:
    bomb = gzip.compress(b" " * (gce_client.PAGE_BYTES_MAX + 1), compresslevel=1)
    compute.answers(Answer(body=bomb, headers={"Content-Encoding": "gzip"}))

    report = await scan(compute)

    assert report.problems == (f"an answer is larger than {gce_client.PAGE_BYTES_MAX} bytes",)
    assert not report.complete


async def test_a_compressed_answer_is_read(compute: ComputeServer) -> None:
    assert isinstance(GOOD.body, bytes)
    compute.answers(Answer(body=gzip.compress(GOOD.body), headers={"Content-Encoding": "gzip"}))

    report = await scan(compute)

    assert report.complete
    assert ids(report) == [GOOD_ID]


async def test_a_redirect_is_not_followed(compute: ComputeServer) -> None:
    compute.answers(Answer(status=302, headers={"Location": f"{compute.address}/elsewhere"}), GOOD)

    report = await scan(compute)

    assert not report.complete
    assert report.problems == ("Compute Engine could not be reached (TooManyRedirects)",)
    assert len(compute.requests) == 1


@pytest.mark.parametrize("stall", ["hang", "trickle"])
async def test_a_scan_that_runs_out_of_time_keeps_its_pages_and_concludes_nothing(
    compute: ComputeServer, stall: str
) -> None:
    compute.answers(page({ZONE: holding(reservation("h100"))}, next_page="p2"), Answer(body=getattr(compute, stall)))

    report = await scan(compute, scan_ms_max=2_000)

    assert not report.complete
    assert ids(report) == [GOOD_ID]
    assert report.problems


async def test_a_scan_whose_thread_cannot_be_stopped_is_given_up(compute: ComputeServer) -> None:
    """An answer that never even begins, drop by drop, keeps the client waiting for the end of its first line."""
    compute.answers(Answer(preface=compute.trickle))
    provider = GceProvider(scan_ms_max=200, overtime_ms=50)

    report = await provider.scan(account(compute.address))
    second = await provider.scan(account(compute.address))

    assert report == ScanReport(
        reservations=(), complete=False, problems=("Compute Engine did not answer in full within 200 ms",)
    )
    assert second.problems == ("an earlier scan of this account still hangs; no second one was started",)
    assert not second.complete


async def test_a_cancelled_scan_has_no_report_and_leaves_no_thread_behind(compute: ComputeServer) -> None:
    reached = threading.Event()

    def stall(connection: Any) -> None:
        reached.set()
        compute.trickle(connection)

    compute.answers(Answer(body=stall), GOOD)
    provider = GceProvider()
    running = asyncio.ensure_future(provider.scan(account(compute.address)))
    assert await asyncio.to_thread(reached.wait, 10)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async with asyncio.timeout(60):
        report = await provider.scan(account(compute.address))
        while any("still hangs" in problem for problem in report.problems):
            await asyncio.sleep(0.01)
            report = await provider.scan(account(compute.address))
    assert report.complete


async def test_nobody_there_concludes_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        report = await GceProvider(scan_ms_max=2_000).scan(account(endpoint))

    assert not report.complete
    assert "could not be reached (ConnectionError)" in report.problems[0]


async def test_without_google_s_client_the_report_says_what_to_install(
    compute: ComputeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, gce_client.__name__)
    monkeypatch.setitem(sys.modules, "google.cloud", None)

    report = await scan(compute)

    assert not report.complete
    assert "pip install 'earmark[gce]'" in report.problems[0]
    assert not compute.requests


async def test_settings_that_were_never_validated_conclude_nothing(compute: ComputeServer) -> None:
    report = await scan(compute, slotsPer="rack")

    assert report.problems == ('settings.slotsPer must be instance or accelerator, not "rack"',)
    assert not report.complete
