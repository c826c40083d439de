"""Whatever bytes come in, each reader of this wire has a value for them or a refusal, and never a fault.

What it takes is in its own type and can be kept: written again it is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as some

from domain.amounts import INT64_MAX, INT64_MIN, Amount, Unit
from domain.budget.patterns import ScopePattern, parse_pattern
from domain.budget.queries import Place, decode_place, encode_place
from domain.budget.scopes import derive_scopes, parse_budget_scope, scope_filter_allows
from domain.budget.shapes import check_amount
from domain.budget.values import LEVELS, Subject
from domain.instants import read_instant, show_instant
from domain.outcomes import InvalidInput
from domain.shapes import Shape
from domain.tenancy import check_scope_filter
from server.rest.cycles.bodies import read_body
from server.rest.cycles.correlation import correlate
from server.rest.cycles.query import Query
from server.rest.cycles.requests import (
    CommitBody,
    DecideBody,
    EventBody,
    ExtendBody,
    ReleaseBody,
    ReserveBody,
)
from workers.budget.texts import is_kept

QUICKLY = settings(max_examples=100, deadline=None, derandomize=True, database=None)

TEXTS = some.text(some.characters(), max_size=200)
"""Surrogates and NUL included."""
BODIES = (ReserveBody, DecideBody, CommitBody, ReleaseBody, ExtendBody, EventBody)
NAMES = sorted(
    {name for kind in BODIES for name in kind.__struct_fields__} | {"unit", "amount", "kind", "name", "tenant"}
)
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | TEXTS
    | some.sampled_from(["TOKENS", "REJECT", INT64_MAX, INT64_MAX + 1, "\ud83d", "\\u0000"])
)
VALUES = some.recursive(
    SCALARS,
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(NAMES) | TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = some.dictionaries(some.sampled_from(NAMES), VALUES, max_size=8)
WHOLE = {
    "idempotency_key": "k",
    "subject": {"tenant": "t"},
    "action": {"kind": "k", "name": "n"},
    "estimate": {"unit": "TOKENS", "amount": 1},
    "actual": {"unit": "TOKENS", "amount": 1},
    "extend_by_ms": 1,
}


def attempted(read: Callable[[], Any]) -> Any:
    """What it comes to: the readers of shapes raise their refusals."""
    try:
        return read()
    except Shape as shape:
        return shape.refusal


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(kind=some.sampled_from(BODIES), sent=some.binary(max_size=300) | OBJECTS.map(written), changes=OBJECTS)
@example(kind=ReserveBody, sent=b'{"metadata":{"a":1e400}}', changes={"metadata": {"a": float("nan")}})
@example(kind=ReserveBody, sent=b"\xef\xbb\xbf{}", changes={"metadata": {"\ud800": 1}})
@QUICKLY
def test_a_body_is_read_or_refused(kind: type[msgspec.Struct], sent: bytes, changes: dict[str, Any]) -> None:
    own = {name: value for name, value in WHOLE.items() if name in kind.__struct_fields__}
    known = {name: value for name, value in changes.items() if name in kind.__struct_fields__}
    for body in (sent, written({**own, **known}), written({**own, **changes})):
        found = read_body(body, kind)
        if isinstance(found, InvalidInput):
            assert found.field
            found.message.encode()
        else:
            again = msgspec.json.encode(found)
            assert read_body(again, kind) == found
            assert is_kept(msgspec.to_builtins(found))


QUERY_READS: tuple[Callable[[Query], Any], ...] = (
    lambda query: query.text("a"),
    lambda query: query.integer("a", least=-5, most=5),
    lambda query: query.boolean("a"),
    lambda query: query.choice("a", Unit, folds=True),
    lambda query: query.instant("a", round_up=True),
    lambda query: query.window("a", "b"),
    lambda query: query.millionths("a"),
    lambda query: query.words("a", most=3),
    lambda query: query.word("a", ("x", "y")),
    lambda query: query.is_descending(),
)


@given(raw=some.binary(max_size=200), value=some.binary(max_size=60))
@example(raw=b"&&==%", value=b"%ED%A0%80")
@example(raw=b"", value=b"9" * 5_000)
@QUICKLY
def test_a_query_is_read_or_refused_by_a_name(raw: bytes, value: bytes) -> None:
    query = Query(raw + b"&a=" + value + b"&b=" + value + b"&sort_dir=" + value)
    for read in QUERY_READS:
        found = attempted(lambda read=read: read(query))
        if isinstance(found, InvalidInput):
            assert found.field in ("a", "b", "sort_dir")
            found.message.encode()
        else:
            assert is_kept(list(found) if isinstance(found, tuple) else found)


@given(text=TEXTS | some.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(Z|[+-][0-9]{2}:[0-9]{2})\Z"))
@example(text="9999-12-31T23:59:59.999-23:59")
@example(text="0001-01-01T00:00:00+23:59")
@QUICKLY
def test_an_instant_is_read_or_it_is_none(text: str) -> None:
    for round_up in (False, True):
        at = read_instant(text, round_up=round_up)
        assert at is None or INT64_MIN < at < INT64_MAX
        if at is not None and 0 <= at < 253_402_300_800_000:
            assert read_instant(show_instant(at)) == at


@given(
    cursor=TEXTS,
    value=some.integers() | TEXTS,
    name=TEXTS,
    kind=some.sampled_from([int, str]),
    cut=some.integers(0, 80),
)
@example(cursor="[" * 4_000, value=0, name="", kind=int, cut=0)
@QUICKLY
def test_a_cursor_is_a_place_or_refused(cursor: str, value: int | str, name: str, kind: type, cut: int) -> None:
    whole = encode_place("mark", Place(value, name))
    for given_cursor in (cursor, whole, whole[:cut], whole[:cut] + cursor, cursor + whole):
        found = decode_place("mark", given_cursor, kind)
        assert isinstance(found, InvalidInput) or (
            type(found.value) is kind and encode_place("mark", found) == given_cursor
        )
    found = decode_place("mark", whole, kind)
    fits = type(value) is kind and not (isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX)
    assert found == Place(value, name) if fits and len(whole) <= 4_096 else isinstance(found, InvalidInput)
    assert isinstance(decode_place("another", whole, kind), InvalidInput)


LEVEL_VALUES = some.none() | TEXTS | some.text("aZ0_.:-", min_size=1, max_size=130)


@given(
    values=some.lists(LEVEL_VALUES, min_size=6, max_size=6), dimensions=some.none() | some.dictionaries(TEXTS, TEXTS)
)
@QUICKLY
def test_a_subject_has_scopes_or_is_refused(values: list[str | None], dimensions: dict[str, str] | None) -> None:
    scopes = derive_scopes(Subject(**dict(zip(LEVELS, values, strict=True)), dimensions=dimensions))  # type: ignore[arg-type]
    if isinstance(scopes, InvalidInput):
        assert scopes.field.startswith("subject")
        return
    assert len(scopes) == sum(bool(value) for value in values)
    for wider, narrower in pairwise(scopes):
        assert narrower.startswith(f"{wider}/")
    for scope in scopes:
        assert re.fullmatch(r"[a-z]+:[a-z0-9_.:-]+(/[a-z]+:[a-z0-9_.-]+)*", scope)
        pattern = parse_pattern(scope)
        assert isinstance(pattern, ScopePattern)
        assert pattern.governs(scope)
        assert scope_filter_allows([scope.rpartition("/")[2]], scopes[-1])


SEGMENTS = some.lists(
    some.tuples(
        some.sampled_from([*LEVELS, "Tenant", "team", ""]), some.sampled_from(["acme", "*", "", "A:b", "x."]) | TEXTS
    )
    .map(":".join)
    .filter(lambda text: len(text) < 300)
    | some.sampled_from(["*", ""]),
    max_size=7,
).map("/".join)


@given(text=TEXTS | SEGMENTS, tenant_id=some.sampled_from(["acme", "A:b", "_"]))
@QUICKLY
def test_a_scope_a_pattern_and_a_filter_are_read_or_refused(text: str, tenant_id: str) -> None:
    path = parse_budget_scope(text, tenant_id=tenant_id)
    if not isinstance(path, InvalidInput):
        assert parse_budget_scope(path, tenant_id=tenant_id) == path
        assert path.split("/")[0] == f"tenant:{tenant_id.lower()}"
    pattern = parse_pattern(text)
    if not isinstance(pattern, InvalidInput):
        assert parse_pattern(pattern.text) == pattern
        assert pattern.governs("tenant:acme") in (True, False)
    entries = attempted(lambda: check_scope_filter([text], "scope_filter"))
    if not isinstance(entries, InvalidInput):
        assert check_scope_filter(list(entries), "scope_filter") == entries


@given(amount=some.integers() | some.booleans() | some.floats() | TEXTS, unit=some.sampled_from(Unit))
@example(amount=INT64_MAX, unit=Unit.TOKENS)
@example(amount=INT64_MAX + 1, unit=Unit.TOKENS)
@QUICKLY
def test_an_amount_is_a_64_bit_integer_or_refused(amount: Any, unit: Unit) -> None:
    fits = type(amount) is int and 0 <= amount <= INT64_MAX
    assert (check_amount(Amount(unit, amount), field="amount") is None) == fits


HEX = some.text("0123456789abcdefA", min_size=30, max_size=34) | some.sampled_from(["1" * 16, "1" * 32, "0" * 32, "01"])


@given(parent=TEXTS | some.builds("00-{}-{}-{}".format, HEX, HEX, HEX), own=TEXTS | HEX)
@example(parent=f"00-{'1' * 32}-{'2' * 16}-01\n", own="1" * 32 + "\n")
@QUICKLY
def test_a_request_has_a_trace_whatever_its_headers_say(parent: str, own: str) -> None:
    found = correlate({"traceparent": parent, "x-cycles-trace-id": own}, request_id="r")
    assert re.fullmatch(r"[0-9a-f]{32}", found.trace_id)
    assert set(found.trace_id) != {"0"}
