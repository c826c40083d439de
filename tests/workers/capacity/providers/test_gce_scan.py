"""Compute Engine over HTTP: Google's own client against a local server that speaks the documented JSON."""

from __future__ import annotations

from typing import Any

import pytest

from domain.capacity.scan import ReportedReservation, ScanReport
from tests.workers.capacity.providers.compute_server import (
    LIST_PATH,
    NO_RESULTS,
    PROJECT,
    Answer,
    ComputeServer,
    holding,
    page,
    reservation,
)
from workers.capacity.providers.gce import GceProvider
from workers.capacity.providers.protocol import ProviderAccountConfig


async def scan(compute: ComputeServer, *, scan_ms_max: int = 20_000, **settings: Any) -> ScanReport:
    account = ProviderAccountConfig(
        account_id="pacct_01h0000000000000000000000a",
        kind="gce",
        settings={"project": PROJECT, "credentials": "anonymous", "apiEndpoint": compute.address, **settings},
    )
    return await GceProvider(scan_ms_max=scan_ms_max).scan(account)


def full_id(name: str, zone: str = "europe-west4-a") -> str:
    return f"projects/{PROJECT}/zones/{zone}/reservations/{name}"


async def test_every_page_of_every_zone_is_read(compute: ComputeServer) -> None:
    compute.answers(
        page({"zones/europe-west4-a": holding(reservation("h100")), "zones/us-east1-b": NO_RESULTS}, next_page="p2"),
        page(
            {
                "zones/europe-west4-a": NO_RESULTS,
                "zones/us-east1-b": holding(
                    reservation("cpu", zone="us-east1-b", machine_type="n2-standard-8", count="3", inUseCount="0")
                ),
            }
        ),
    )

    report = await scan(compute)

    assert report == ScanReport(
        reservations=(
            ReportedReservation(
                reservation_id=full_id("h100"), flavor="a3-highgpu-8g", region="europe-west4", total=10, in_use=4
            ),
            ReportedReservation(
                reservation_id=full_id("cpu", "us-east1-b"),
                flavor="n2-standard-8",
                region="us-east1",
                total=3,
                in_use=0,
            ),
        ),
        complete=True,
    )
    assert [request.path for request in compute.requests] == [LIST_PATH, LIST_PATH]
    assert [request.query.get("pageToken") for request in compute.requests] == [None, "p2"]
    assert {request.query["maxResults"] for request in compute.requests} == {"500"}
    assert not any("authorization" in request.headers for request in compute.requests)


async def test_partial_success_is_asked_for(compute: ComputeServer) -> None:
    """By the parameter, or by an API version that always does it."""
    compute.answers(page({"zones/us-east1-b": NO_RESULTS}))

    await scan(compute)

    request = compute.requests[0]
    by_version = request.headers.get("x-goog-api-version", "") >= "2026-09-01"
    assert by_version or request.query.get("returnPartialSuccess") == "true"


async def test_a_project_without_reservations_is_a_complete_report(compute: ComputeServer) -> None:
    compute.answers(page({"zones/us-east1-b": NO_RESULTS}, warning=NO_RESULTS["warning"]))

    assert await scan(compute) == ScanReport(reservations=(), complete=True)


@pytest.mark.parametrize(
    ("status", "ready"),
    [("READY", True), ("CREATING", False), ("DELETING", False), ("UPDATING", False), ("INVALID", False), ("", False)],
)
async def test_only_a_ready_reservation_is_ready(compute: ComputeServer, status: str, ready: bool) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(reservation("h100", status=status))}))

    report = await scan(compute)

    assert report.complete
    assert [found.ready for found in report.reservations] == [ready]


async def test_fewer_usable_machines_than_reserved_are_remarked_and_take_nothing_away(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(reservation("h100", assuredCount="7"))}))

    report = await scan(compute)

    assert report.complete
    assert [found.total for found in report.reservations] == [10]
    assert report.problems == (f"{full_id('h100')}: only 7 of 10 reserved machines are usable now",)


async def test_a_shared_reservation_is_counted_whole_by_its_owner(compute: ComputeServer) -> None:
    shared = reservation("shared", inUseCount="9")
    consumers = {"team-blue-1": {"projectId": "team-blue-1"}, "team-red-22": {"projectId": "team-red-22"}}
    shared["shareSettings"] = {"shareType": "SPECIFIC_PROJECTS", "projectMap": consumers}
    compute.answers(page({"zones/europe-west4-a": holding(shared)}))

    report = await scan(compute)

    assert report.complete
    assert [(found.total, found.in_use) for found in report.reservations] == [(10, 9)]


async def test_an_answer_about_another_project_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(reservation("h100", project="somebody-else"))}))

    report = await scan(compute)

    assert not report.complete
    assert report.problems == (f"{full_id('h100')} belongs to another project (somebody-else)",)


async def test_a_project_named_by_its_number_is_still_ours(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(reservation("h100", project="123456789012"))}))

    report = await scan(compute)

    assert report.complete
    assert [found.reservation_id for found in report.reservations] == [full_id("h100")]


async def test_only_the_wanted_zones_count(compute: ComputeServer) -> None:
    compute.answers(
        page(
            {
                "zones/europe-west4-a": holding(reservation("wanted")),
                "zones/us-east1-b": holding(reservation("other", zone="us-east1-b")),
                "zones/us-east1-c": {"warning": {"code": "UNREACHABLE", "message": "down"}},
            },
            unreachables=("projects/capacity-prod/zones/us-east1-d",),
            warning={"code": "UNREACHABLE", "data": [{"key": "scope", "value": "zones/us-east1-d"}]},
        )
    )

    report = await scan(compute, zones=["europe-west4-a"])

    assert report.complete
    assert [found.reservation_id for found in report.reservations] == [full_id("wanted")]


async def test_a_wanted_zone_that_the_answer_does_not_mention_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": NO_RESULTS}))

    report = await scan(compute, zones=["europe-west4-a", "europe-west4-z"])

    assert not report.complete
    assert report.problems == ("the answer does not mention the zone europe-west4-z: does it exist?",)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"items": {}}', b'{"ok": true}', b'{"items": {"global": {}}}'])
async def test_an_answer_without_any_zone_concludes_nothing(compute: ComputeServer, body: bytes) -> None:
    """Whatever stands in front of the API and says 200, its empty answer is not an empty project."""
    compute.answers(Answer(body=body))

    report = await scan(compute)

    assert report == ScanReport(reservations=(), complete=False, problems=("the answer mentions no zone at all",))


@pytest.mark.parametrize(
    ("settings", "flavor"),
    [
        ({}, "n1-standard-8:nvidia-tesla-t4:2"),
        ({"flavors": {"n1-standard-8": "t4-node"}}, "t4-node"),
        ({"flavors": {"n1-standard-8": "plain", "n1-standard-8:nvidia-tesla-t4:2": "t4-2x"}}, "t4-2x"),
    ],
)
async def test_the_flavor_follows_machine_type_and_accelerators(
    compute: ComputeServer, settings: dict[str, Any], flavor: str
) -> None:
    accelerators = [(f"projects/{PROJECT}/zones/europe-west4-a/acceleratorTypes/nvidia-tesla-t4", 2)]
    compute.answers(
        page(
            {
                "zones/europe-west4-a": holding(
                    reservation("t4", machine_type="n1-standard-8", accelerators=accelerators)
                )
            }
        )
    )

    report = await scan(compute, **settings)

    assert report.complete
    assert [(found.flavor, found.total) for found in report.reservations] == [(flavor, 10)]


async def test_built_in_accelerators_do_not_lengthen_the_flavor(compute: ComputeServer) -> None:
    compute.answers(
        page({"zones/europe-west4-a": holding(reservation("h100", accelerators=[("nvidia-h100-80gb", 8)]))})
    )

    assert [found.flavor for found in (await scan(compute)).reservations] == ["a3-highgpu-8g"]


async def test_slots_can_be_accelerators(compute: ComputeServer) -> None:
    compute.answers(
        page(
            {
                "zones/europe-west4-a": holding(
                    reservation("listed", accelerators=[("nvidia-h100-80gb", 8)]),
                    reservation("told", machine_type="a2-ultragpu-4g", count="2", inUseCount="1"),
                )
            }
        )
    )

    report = await scan(compute, slotsPer="accelerator", acceleratorsPerInstance={"a2-ultragpu-4g": 4})

    assert report.complete
    assert [(found.total, found.in_use) for found in report.reservations] == [(80, 32), (8, 4)]


async def test_an_unknown_number_of_accelerators_concludes_nothing(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(reservation("h100"))}))

    report = await scan(compute, slotsPer="accelerator")

    assert not report.complete
    assert "acceleratorsPerInstance" in report.problems[0]


def tpu(name: str) -> dict[str, Any]:
    item = reservation(name)
    del item["specificReservation"]
    chips = {"acceleratorType": f"projects/{PROJECT}/zones/europe-west4-a/acceleratorTypes/ct5lp"}
    item["aggregateReservation"] = {
        "vmFamily": "VM_FAMILY_CLOUD_TPU_LITE_POD_SLICE_CT5LP",
        "reservedResources": [{"accelerator": {**chips, "acceleratorCount": 256}}],
        "inUseResources": [{"accelerator": {**chips, "acceleratorCount": 16}}],
    }
    return item


async def test_an_aggregate_reservation_is_not_counted_in_machines(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(tpu("pod"), reservation("h100"))}))

    report = await scan(compute)

    assert report.complete
    assert [found.reservation_id for found in report.reservations] == [full_id("h100")]
    assert report.problems == (
        f"{full_id('pod')} is an aggregate reservation, which cannot be counted in machines: left out",
    )


async def test_an_aggregate_reservation_of_mixed_accelerators_concludes_nothing(compute: ComputeServer) -> None:
    mixed = tpu("pod")
    other = {"accelerator": {"acceleratorType": "ct6e", "acceleratorCount": 8}}
    mixed["aggregateReservation"]["reservedResources"].append(other)
    compute.answers(page({"zones/europe-west4-a": holding(mixed)}))

    report = await scan(compute, slotsPer="accelerator")

    assert not report.complete
    assert report.problems == (f"{full_id('pod')} does not reserve exactly one type of accelerator",)


async def test_an_aggregate_reservation_is_counted_in_accelerators(compute: ComputeServer) -> None:
    compute.answers(page({"zones/europe-west4-a": holding(tpu("pod"))}))

    report = await scan(compute, slotsPer="accelerator", flavors={"ct5lp": "tpu-v5e"})

    assert report.complete
    assert [(found.flavor, found.total, found.in_use) for found in report.reservations] == [("tpu-v5e", 256, 16)]
