"""Instants, traces and query parameters, as this wire reads them (sections 1.0 and 6.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from domain.amounts import Unit
from domain.instants import read_instant, show_instant
from domain.outcomes import InvalidInput
from domain.shapes import Shape
from server.rest.cycles.correlation import correlate
from server.rest.cycles.query import Query

AT = 1_800_000_000_123
TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER = "11111111111111111111111111111111"
SPAN = "b7ad6b7169203331"


@pytest.mark.parametrize("at", [0, 1, 999, 1_000, AT, 253_402_300_799_999])
def test_an_instant_is_read_as_it_is_shown(at: int) -> None:
    shown = show_instant(at)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", shown)
    assert read_instant(shown) == at
    assert datetime.fromisoformat(shown) == datetime.fromtimestamp(at // 1_000, UTC).replace(
        microsecond=at % 1_000 * 1_000
    )


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2027-01-15T08:00:00Z", 1_800_000_000_000),
        ("2027-01-15t09:30:00+01:30", 1_800_000_000_000),
        ("2027-01-14T20:00:00-12:00", 1_800_000_000_000),
        ("2027-01-15T08:00:00.1239999Z", AT),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_any_offset_is_understood(text: str, at: int) -> None:
    assert read_instant(text) == at


def test_the_lower_end_of_a_window_goes_to_the_next_millisecond() -> None:
    assert read_instant("2027-01-15T08:00:00.1230001Z", round_up=True) == AT + 1
    assert read_instant("2027-01-15T08:00:00.123Z", round_up=True) == AT


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-15T08:00:00",
        "2027-01-15T08:00:00 01:00",
        "2027-01-15 08:00:00Z",
        "2027-01-15",
        "20270115T080000Z",
        "2027-W02-5T08:00:00Z",
        "2027-13-15T08:00:00Z",
        "2027-02-30T08:00:00Z",
        "2027-01-15T24:00:00Z",
        "2027-01-15T08:00:60Z",
        "2027-01-15T08:00:00+24:00",
        "2027-01-15T08:00:00+01:60",
        "2027-01-15T08:00:00Z\n",
        "٢٠٢٧-01-15T08:00:00Z",
        "1800000000000",
        "0000-01-01T00:00:00Z",
    ],
)
def test_what_is_no_date_time_with_an_offset_is_none(text: str) -> None:
    assert read_instant(text) is None


TRACES: dict[str, tuple[dict[str, str], str | None, str | None]] = {
    "a traceparent": ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, TRACE, "01"),
    "its flags as they are": ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, TRACE, "00"),
    "the traceparent before the other": (
        {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-cycles-trace-id": OTHER},
        TRACE,
        "01",
    ),
    "the other": ({"x-cycles-trace-id": OTHER}, OTHER, None),
    "the other beside a malformed one": ({"traceparent": "00-zz", "x-cycles-trace-id": OTHER}, OTHER, None),
    "another version": ({"traceparent": f"01-{TRACE}-{SPAN}-01"}, None, None),
    "upper case": ({"traceparent": f"00-{TRACE.upper()}-{SPAN}-01", "x-cycles-trace-id": TRACE.upper()}, None, None),
    "no trace": ({"traceparent": f"00-{'0' * 32}-{SPAN}-01", "x-cycles-trace-id": "0" * 32}, None, None),
    "no span": ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, None, None),
    "something behind": ({"traceparent": f"00-{TRACE}-{SPAN}-01-x", "x-cycles-trace-id": f"{OTHER}0"}, None, None),
    "nothing": ({}, None, None),
}


@pytest.mark.parametrize("case", TRACES)
def test_the_trace_is_the_clients_when_it_names_one_well(case: str) -> None:
    headers, trace_id, flags = TRACES[case]
    found = correlate(headers, request_id="req_1")
    assert (found.request_id, found.trace_flags) == ("req_1", flags)
    if trace_id is not None:
        assert found.trace_id == trace_id
    else:
        assert re.fullmatch("[0-9a-f]{32}", found.trace_id)
        assert found.trace_id not in (TRACE, OTHER, "0" * 32)


def test_parameters_are_read_in_their_own_types() -> None:
    query = Query(b"limit=7&unit=TOKENS&over_limit=True&from=2027-01-15T09:00:00%2B01:00&include=a,,%20b%20,&unknown=1")
    assert query.integer("limit", least=1, most=200) == 7
    assert query.choice("unit", Unit) is Unit.TOKENS
    assert query.boolean("over_limit") is True
    assert query.instant("from") == 1_800_000_000_000
    assert query.words("include") == ("a", "b")
    assert query.is_descending()


def test_a_blank_parameter_is_absent() -> None:
    query = Query(b"limit=&unit=&over_limit=&from=&to=&search=&include=&sort_dir=")
    assert query.integer("limit", least=1, most=200) is None
    assert query.choice("unit", Unit) is None
    assert query.boolean("over_limit") is None
    assert query.window("from", "to") == (None, None)
    assert query.text("search") is None
    assert query.words("include") == ()
    assert query.is_descending(default=False) is False


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"limit=0", "limit"),
        (b"limit=201", "limit"),
        (b"limit=1.0", "limit"),
        (b"limit=%D9%A1", "limit"),
        (b"limit=1_0", "limit"),
        (b"unit=tokens", "unit"),
        (b"over_limit=1", "over_limit"),
        (b"from=2027-01-15T08:00:00+00:00", "from"),
        (b"from=2027-01-15T08:00:01Z&to=2027-01-15T08:00:00Z", "from"),
        (b"sort_dir=up", "sort_dir"),
        (b"utilization=1.01", "utilization"),
        (b"utilization=-0.1", "utilization"),
        (b"utilization=nan", "utilization"),
        (b"search=%00", "search"),
        (b"search=" + b"x" * 129, "search"),
        (b"search=%FF", "search"),
        (b"search=%ED%A0%80", "search"),
    ],
)
def test_a_malformed_parameter_is_refused_by_its_name(raw: bytes, name: str) -> None:
    with pytest.raises(Shape) as caught:
        _read_all(Query(raw))
    assert isinstance(caught.value.refusal, InvalidInput)
    assert caught.value.refusal.field == name


@pytest.mark.parametrize(
    "raw", [b"&".join(b"later%d=1" % number for number in range(5_000)), b"later=%FF", b"%00=%00", b"later", b"=&&="]
)
def test_unknown_parameters_are_passed_over_whatever_they_are(raw: bytes) -> None:
    query = Query(raw + b"&search=x")
    _read_all(query)
    assert query.text("search") == "x"


def _read_all(query: Query) -> None:
    query.integer("limit", least=1, most=200)
    query.choice("unit", Unit)
    query.boolean("over_limit")
    query.window("from", "to")
    query.is_descending()
    query.millionths("utilization")
    query.text("search", most=128)


@pytest.mark.parametrize(("text", "millionths"), [("0", 0), ("1", 10**6), ("0.95", 950_000), ("0.1234567", 123_456)])
def test_a_fraction_is_read_without_floats(text: str, millionths: int) -> None:
    assert Query(f"share={text}".encode()).millionths("share") == millionths
