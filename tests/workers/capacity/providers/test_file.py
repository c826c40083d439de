"""The inventory file: what is read, and how every wrong file becomes a report that concludes nothing (R54, D12)."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from domain.capacity.scan import ReportedReservation, ScanReport
from workers.capacity.providers.file import FILE_BYTES_MAX, FileProvider
from workers.capacity.providers.protocol import PROBLEMS_MAX, RESERVATIONS_MAX, ProviderAccountConfig

INVENTORY = """\
count: 2
reservations:
  - reservationId: rack-7/h100
    flavor: h100-8x
    region: eu-west
    total: 16
    inUse: 4
    ready: false
  - {reservationId: rack-8/h100, flavor: h100-8x, region: eu-west, total: 8}
"""
RACK_7 = ReportedReservation(
    reservation_id="rack-7/h100", flavor="h100-8x", region="eu-west", total=16, in_use=4, ready=False
)
RACK_8 = ReportedReservation(reservation_id="rack-8/h100", flavor="h100-8x", region="eu-west", total=8)
ENTRY = {"reservationId": "rack-7/h100", "flavor": "h100-8x", "region": "eu-west", "total": 16}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    inside = tmp_path / "inventory"
    inside.mkdir()
    return inside


async def scan(directory: Path, path: str = "lab.yaml") -> ScanReport:
    account = ProviderAccountConfig(account_id="pacct_01h0000000000000000000000a", kind="file", settings={"path": path})
    return await FileProvider(inventory_directory=directory).scan(account)


async def scan_text(directory: Path, text: str, *, name: str = "lab.yaml") -> ScanReport:
    (directory / name).write_text(text)
    return await scan(directory, name)


async def scan_entries(directory: Path, *entries: Any) -> ScanReport:
    """The same entries as YAML and as JSON say the same but for the line."""
    text = json.dumps({"reservations": list(entries)})
    as_yaml, as_json = await scan_text(directory, text + "\n"), await scan_text(directory, text, name="lab.json")
    plain = [
        problem.replace("lab.yaml: line 1, ", "lab.json: ").replace("line 1, ", "") for problem in as_yaml.problems
    ]
    assert plain == list(as_json.problems)
    assert (as_yaml.reservations, as_yaml.complete) == (as_json.reservations, as_json.complete)
    return as_json


async def test_a_yaml_inventory_is_read(directory: Path) -> None:
    assert await scan_text(directory, INVENTORY) == ScanReport(reservations=(RACK_7, RACK_8), complete=True)


async def test_a_json_inventory_is_read(directory: Path) -> None:
    text = json.dumps({"reservations": [{**ENTRY, "inUse": 4, "ready": False}]}, indent="\t")

    assert await scan_text(directory, text, name="lab.json") == ScanReport(reservations=(RACK_7,), complete=True)


async def test_each_scan_reads_the_file_anew(directory: Path) -> None:
    assert (await scan_text(directory, INVENTORY)).reservations == (RACK_7, RACK_8)

    (directory / "new.yaml").write_text("reservations:\n  - " + json.dumps(ENTRY) + "\n")
    (directory / "new.yaml").replace(directory / "lab.yaml")

    assert [found.ready for found in (await scan(directory)).reservations] == [True]


async def test_an_empty_list_is_a_full_statement(directory: Path) -> None:
    assert await scan_text(directory, "reservations: []\n") == ScanReport(reservations=(), complete=True)


async def test_a_path_may_be_absolute_and_a_link_inside_the_directory(directory: Path) -> None:
    (directory / "data").mkdir()
    (directory / "data" / "lab.yaml").write_text(INVENTORY)
    (directory / "lab.yaml").symlink_to("data/lab.yaml")

    assert (await scan(directory, str(directory / "lab.yaml"))).complete


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"totl": 1}, "totl is not a known key (known: reservationId, flavor, region, total, inUse, ready)"),
        ({"total": -1}, "total must be a whole number from 0 to 1000000000, not -1"),
        ({"total": True}, "total must be a whole number from 0 to 1000000000, not true"),
        ({"total": 1.5}, "total must be a whole number from 0 to 1000000000, not 1.5"),
        ({"total": "16"}, 'total must be a whole number from 0 to 1000000000, not "16"'),
        ({"total": None}, "total must be a whole number from 0 to 1000000000, not nothing"),
        ({"total": 1_000_000_001}, "total must be a whole number from 0 to 1000000000, not 1000000001"),
        ({"total": 10**30}, "total must be a whole number from 0 to 1000000000, not a number of more than 64 bits"),
        ({"total": [[1]]}, "total must be a whole number from 0 to 1000000000, not a list"),
        ({"inUse": -4}, "inUse must be a whole number from 0 to 1000000000, not -4"),
        ({"inUse": False}, "inUse must be a whole number from 0 to 1000000000, not false"),
        ({"ready": 1}, "ready must be true or false, not 1"),
        ({"ready": "yes"}, 'ready must be true or false, not "yes"'),
        ({"ready": None}, "ready must be true or false, not nothing"),
        (
            {"reservationId": 7},
            "reservationId must be 1 to 300 letters, digits and signs of . / : _ -, not 7 (put it in quotes)",
        ),
        (
            {"reservationId": "rack 7"},
            'reservationId must be 1 to 300 letters, digits and signs of . / : _ -, not "rack 7"',
        ),
        (
            {"reservationId": "rack-7\n"},
            'reservationId must be 1 to 300 letters, digits and signs of . / : _ -, not "rack-7 "',
        ),
        ({"flavor": ""}, 'flavor must be 1 to 128 letters, digits and signs of . : _ -, not ""'),
        ({"region": {"name": "eu"}}, "region must be 1 to 128 letters, digits and signs of . : _ -, not an object"),
    ],
)
async def test_a_wrong_value_names_its_place_and_takes_nothing_from_the_file(
    directory: Path, change: dict[str, Any], problem: str
) -> None:
    good = {**ENTRY, "reservationId": "rack-1/h100"}

    report = await scan_entries(directory, good, {**ENTRY, **change})

    assert report == ScanReport(reservations=(), complete=False, problems=(f"lab.json: reservations[1].{problem}",))


@pytest.mark.parametrize("key", ["reservationId", "flavor", "region", "total"])
async def test_a_missing_key_is_named(directory: Path, key: str) -> None:
    report = await scan_entries(directory, {name: value for name, value in ENTRY.items() if name != key})

    assert report.problems == (f"lab.json: reservations[0].{key} is missing",)
    assert not report.complete


@pytest.mark.parametrize("entry", ["rack-7", 7, None, []])
async def test_an_entry_that_is_no_object_is_named(directory: Path, entry: Any) -> None:
    report = await scan_entries(directory, entry)

    assert not report.complete
    assert report.problems[0].startswith("lab.json: reservations[0] must be an object with reservationId, flavor")


async def test_an_id_given_twice_is_named(directory: Path) -> None:
    report = await scan_entries(directory, ENTRY, {**ENTRY, "reservationId": "other"}, {**ENTRY, "total": 3})

    assert not report.complete
    assert report.problems == ("lab.json: reservations[2].reservationId is the same as in reservations[0]",)


async def test_a_problem_in_yaml_names_its_line(directory: Path) -> None:
    report = await scan_text(directory, INVENTORY.replace("total: 8", "total: -8"))

    assert report.problems == (
        "lab.yaml: line 9, reservations[1].total must be a whole number from 0 to 1000000000, not -8",
    )


async def test_all_wrong_entries_are_told_up_to_a_limit(directory: Path) -> None:
    report = await scan_entries(directory, *({**ENTRY, "total": -1} for _ in range(PROBLEMS_MAX + 10)))

    assert len(report.problems) == PROBLEMS_MAX
    assert report.problems[-1] == "and 11 more"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "does not end with a line break"),
        ("\n", "must be an object with the key reservations, not nothing"),
        ("- a\n", "must be an object with the key reservations, not a list"),
        ("reservations:\n", "reservations must be a list, not nothing"),
        ("reservations: {}\n", "reservations must be a list, not an object"),
        ("reservation: []\n", "reservation is not a known key"),
        ("reservations: []\nreservations: []\n", "line 2: the key reservations is given twice"),
        ("reservations:\n  - {total: 1, total: 2}\n", "line 2: the key total is given twice"),
        ("reservations: []\n---\nreservations: []\n", "line 2: not YAML: but found another document"),
        ("reservations: [\n", "not YAML"),
        ("reservations: []\nx: *nobody\n", "line 2: not YAML: found undefined alias"),
        ("reservations: !!python/object/apply:os.system [id]\n", "line 1: not YAML: could not determine a constructor"),
        ("reservations: !!int x\n", "not YAML"),
        ("? [a]\n: b\n", "not YAML"),
        ("[" * 5_000 + "\n", "not YAML"),
        ("reservations: []\ncount: " + "9" * 5_000 + "\n", "not YAML"),
        ("reservations: []\n\x01\n", "not YAML"),
        ("count: 1\nreservations: []\n", "count says 1, but 0 reservations follow: the file may be cut short"),
        ("count: true\nreservations: []\n", "count must be a whole number, not true"),
    ],
)
async def test_a_wrong_yaml_document_concludes_nothing(directory: Path, text: str, problem: str) -> None:
    report = await scan_text(directory, text)

    assert (report.reservations, report.complete) == ((), False)
    assert report.problems[0].startswith("lab.yaml: ")
    assert problem in report.problems[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: not JSON"),
        ('{"reservations": [],\n', "line 2: not JSON"),
        ('{"reservations": []} x', "not JSON"),
        ('{"reservations": [], "reservations": []}', "the key reservations is given twice in one object"),
        ('{"reservations": [{"total": NaN}]}', "not JSON: NaN"),
        ("[" * 100_000, "not JSON"),
        ('{"reservations": [], "count": ' + "9" * 5_000 + "}", "not JSON"),
    ],
)
async def test_a_wrong_json_document_concludes_nothing(directory: Path, text: str, problem: str) -> None:
    report = await scan_text(directory, text, name="lab.json")

    assert (report.reservations, report.complete) == ((), False)
    assert problem in report.problems[0]


@pytest.mark.parametrize("word", ["no", "yes", "on", "010", "1:30", "1_000", "0x10", "2027-01-15", "~x"])
async def test_yaml_words_stay_words(directory: Path, word: str) -> None:
    """The older YAML would read a region `no` as false and a total `010` as eight."""
    report = await scan_text(directory, INVENTORY.replace("total: 16", f"total: {word}"))

    assert report.problems == (
        f'lab.yaml: line 3, reservations[0].total must be a whole number from 0 to 1000000000, not "{word}"',
    )


async def test_a_region_named_no_is_a_region(directory: Path) -> None:
    report = await scan_text(directory, INVENTORY.replace("region: eu-west\n", "region: no\n"))

    assert [found.region for found in report.reservations] == ["no", "eu-west"]


@pytest.mark.parametrize("ending", range(1, len(INVENTORY)))
async def test_no_half_written_inventory_is_believed(directory: Path, ending: int) -> None:
    report = await scan_text(directory, INVENTORY[:ending])

    assert (report.reservations, report.complete) == ((), False)
    assert report.problems


async def test_shared_nodes_of_yaml_do_not_grow(directory: Path) -> None:
    """Nine levels of nine aliases would be four hundred million values, were they ever written out."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]

    report = await scan_text(directory, "\n".join([*levels, "reservations: *a8", ""]))

    assert not report.complete


async def test_a_missing_file_concludes_nothing(directory: Path) -> None:
    assert await scan(directory) == ScanReport(
        reservations=(), complete=False, problems=("lab.yaml: No such file or directory",)
    )


async def test_what_is_no_regular_file_concludes_nothing(directory: Path) -> None:
    os.mkfifo(directory / "lab.yaml")
    (directory / "folder.yaml").mkdir()
    (directory / "loop.yaml").symlink_to("loop.yaml")

    async with asyncio.timeout(60):
        assert (await scan(directory)).problems == ("lab.yaml: is not a regular file",)
        assert not (await scan(directory, "folder.yaml")).complete
        assert not (await scan(directory, "loop.yaml")).complete


async def test_a_file_that_is_not_text_concludes_nothing(directory: Path) -> None:
    (directory / "lab.yaml").write_bytes(b"reservations: []\n# \xff\n")

    assert (await scan(directory)).problems == ("lab.yaml: not UTF-8 at byte 19",)


async def test_a_file_that_is_too_large_concludes_nothing(directory: Path) -> None:
    report = await scan_text(directory, "reservations: []\n" + "#" * FILE_BYTES_MAX + "\n")

    assert report.problems == (f"lab.yaml: is larger than {FILE_BYTES_MAX} bytes",)


async def test_too_many_reservations_conclude_nothing(directory: Path) -> None:
    entries = [{**ENTRY, "reservationId": f"r{n}"} for n in range(RESERVATIONS_MAX + 1)]

    report = await scan_text(directory, json.dumps({"reservations": entries}), name="lab.json")

    assert report.problems == (
        f"lab.json: holds {RESERVATIONS_MAX + 1} reservations; at most {RESERVATIONS_MAX} are read",
    )


async def test_as_many_reservations_as_allowed_are_read(directory: Path) -> None:
    entries = [{**ENTRY, "reservationId": f"r{n}"} for n in range(RESERVATIONS_MAX)]

    report = await scan_text(directory, json.dumps({"reservations": entries}) + "\n")

    assert report.complete
    assert len(report.reservations) == RESERVATIONS_MAX


async def test_a_reading_that_takes_too_long_concludes_nothing(directory: Path) -> None:
    (directory / "lab.yaml").write_text(INVENTORY)
    config = ProviderAccountConfig(account_id="pacct_1", kind="file", settings={"path": "lab.yaml"})

    report = await FileProvider(inventory_directory=directory, read_ms_max=0).scan(config)

    assert report == ScanReport(
        reservations=(), complete=False, problems=("the inventory could not be read within 0 ms",)
    )


async def test_a_file_that_is_written_during_scans_is_believed_whole_or_not_at_all(directory: Path) -> None:
    versions = [
        json.dumps({"reservations": [{**ENTRY, "reservationId": f"{n}"} for n in range(amount)]})
        for amount in (400, 900)
    ]
    target, stop = directory / "lab.json", threading.Event()

    def write() -> None:
        while not stop.is_set():
            for version in versions:
                target.write_text(version)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [await scan(directory, "lab.json") for _ in range(40)]
    finally:
        stop.set()
        writer.join()

    assert {len(report.reservations) for report in reports if report.complete} <= {400, 900}
    assert all(report.problems and not report.reservations for report in reports if not report.complete)


async def test_a_link_that_leads_outside_is_not_followed(directory: Path) -> None:
    (directory.parent / "outside.yaml").write_text(INVENTORY)
    (directory / "lab.yaml").symlink_to("../outside.yaml")

    report = await scan(directory)

    assert report == ScanReport(
        reservations=(), complete=False, problems=("lab.yaml: leads outside the inventory directory",)
    )


@pytest.mark.parametrize(
    ("settings", "field", "reason"),
    [
        ({}, "settings.path", "malformed"),
        ({"path": ""}, "settings.path", "malformed"),
        ({"path": 3}, "settings.path", "malformed"),
        ({"path": "a\x00.yaml"}, "settings.path", "malformed"),
        ({"path": "x" * 2_000 + ".yaml"}, "settings.path", "malformed"),
        ({"path": "lab.txt"}, "settings.path", "malformed"),
        ({"path": "../secret.yaml"}, "settings.path", "outside-inventory-directory"),
        ({"path": "a/../../secret.yaml"}, "settings.path", "outside-inventory-directory"),
        ({"path": "/etc/secret.yaml"}, "settings.path", "outside-inventory-directory"),
        ({"path": "lab.yaml", "paht": "x"}, "settings.paht", "unknown-key"),
    ],
)
def test_wrong_settings_are_refused_with_their_field(
    directory: Path, settings: dict[str, Any], field: str, reason: str | None
) -> None:
    refusal = FileProvider(inventory_directory=directory).validate_settings(settings)

    assert refusal is not None
    assert (refusal.field, refusal.reason) == (field, reason)


def test_a_neighbour_whose_name_begins_alike_is_outside(directory: Path) -> None:
    refusal = FileProvider(inventory_directory=directory).validate_settings({"path": f"{directory}-2/lab.yaml"})

    assert refusal is not None
    assert refusal.reason == "outside-inventory-directory"


def test_good_settings_need_no_file_yet(directory: Path) -> None:
    provider = FileProvider(inventory_directory=directory)

    assert provider.validate_settings({"path": "sites/lab.yml"}) is None
    assert provider.validate_settings({"path": str(directory / "lab.json")}) is None


async def test_without_a_directory_every_account_is_refused_and_every_scan_concludes_nothing(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(INVENTORY)
    provider = FileProvider(inventory_directory=None)
    settings = {"path": str(tmp_path / "lab.yaml")}

    refusal = provider.validate_settings(settings)
    report = await provider.scan(ProviderAccountConfig(account_id="pacct_1", kind="file", settings=settings))

    assert refusal is not None
    assert refusal.reason == "no-inventory-directory"
    assert report == ScanReport(reservations=(), complete=False, problems=(refusal.message,))
