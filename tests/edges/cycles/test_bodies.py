"""Bodies are read exactly: closed at every level, integers as they stand, nothing coerced (section 1.0)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.amounts import INT64_MAX, Unit
from domain.outcomes import InvalidInput
from server.rest.cycles.bodies import DEPTH_MAX, read_body
from server.rest.cycles.requests import CommitBody, EventBody, ReserveBody


def reservation(**changes: Any) -> dict[str, Any]:
    """An acceptable request. What is changed to `...` is left out."""
    given = {
        "idempotency_key": "key-1",
        "subject": {"tenant": "acme", "agent": "bot"},
        "action": {"kind": "llm.completion", "name": "m"},
        "estimate": {"unit": "TOKENS", "amount": 5},
        **changes,
    }
    return {name: value for name, value in given.items() if value is not ...}


def read(value: Any) -> ReserveBody | InvalidInput:
    return read_body(json.dumps(value).encode(), ReserveBody)


def refused_field(value: Any) -> str:
    found = read(value)
    assert isinstance(found, InvalidInput), found
    return found.field


def test_a_request_arrives_in_its_own_types() -> None:
    found = read(reservation(ttl_ms=1_000, dry_run=False, metadata={"any": [1, 2.5, None, {"x": True}]}))
    assert isinstance(found, ReserveBody)
    assert (found.estimate.unit, found.estimate.amount, found.ttl_ms, found.dry_run) == (Unit.TOKENS, 5, 1_000, False)
    assert found.metadata == {"any": [1, 2.5, None, {"x": True}]}
    assert found.subject.value().agent == "bot"


@pytest.mark.parametrize("amount", ["5", 5.0, 1.5, True, None, [5], {}])
def test_an_amount_is_an_integer_and_nothing_that_looks_like_one(amount: Any) -> None:
    assert refused_field(reservation(estimate={"unit": "TOKENS", "amount": amount})) == "estimate.amount"


@pytest.mark.parametrize("digits", ["5.0", "5e0", "5E3", "NaN", "Infinity", "-Infinity", "05", "+5", "0x5", "5_0"])
def test_a_number_of_another_spelling_is_refused(digits: str) -> None:
    sent = json.dumps(reservation(estimate={"unit": "TOKENS", "amount": 777})).replace("777", digits)
    assert isinstance(read_body(sent.encode(), ReserveBody), InvalidInput)


def test_64_bits_are_read_exactly_and_more_is_left_to_the_rules() -> None:
    for amount in (INT64_MAX, INT64_MAX + 1, 2**200):
        found = read(reservation(estimate={"unit": "TOKENS", "amount": amount}))
        assert isinstance(found, ReserveBody)
        assert found.estimate.amount == amount


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "the request": (reservation(extra=1), "extra"),
    "the subject": (reservation(subject={"tenant": "acme", "Tenant": "x"}), "subject.Tenant"),
    "the action": (reservation(action={"kind": "k", "name": "n", "policy_keys": {}}), "action.policy_keys"),
    "the amount": (reservation(estimate={"unit": "TOKENS", "amount": 1, "currency": "x"}), "estimate.currency"),
}


@pytest.mark.parametrize("place", UNKNOWN)
def test_an_unknown_field_is_named_at_every_level(place: str) -> None:
    given, field = UNKNOWN[place]
    found = read(given)
    assert isinstance(found, InvalidInput)
    assert (found.field, found.reason) == (field, "unknown-field")


def test_metrics_are_closed_but_for_their_custom_part() -> None:
    sent = {"idempotency_key": "k", "actual": {"unit": "TOKENS", "amount": 1}}
    custom = {**sent, "metrics": {"latency_ms": 3, "custom": {"anything": {"at": ["all"]}}}}
    assert isinstance(read_body(json.dumps(custom).encode(), CommitBody), CommitBody)
    other = read_body(json.dumps({**sent, "metrics": {"cost": 3}}).encode(), CommitBody)
    assert isinstance(other, InvalidInput)
    assert other.field == "metrics.cost"


@pytest.mark.parametrize("name", ["idempotency_key", "subject", "action", "estimate"])
@pytest.mark.parametrize("value", [..., None])
def test_a_required_field_is_neither_missing_nor_null(name: str, value: Any) -> None:
    assert refused_field(reservation(**{name: value})) == name


@pytest.mark.parametrize("name", ["ttl_ms", "grace_period_ms", "overage_policy", "dry_run", "metadata"])
def test_null_for_an_optional_field_is_as_good_as_none(name: str) -> None:
    assert read(reservation(**{name: None})) == read(reservation())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dry_run": 1}, "dry_run"),
        ({"dry_run": "true"}, "dry_run"),
        ({"overage_policy": "reject"}, "overage_policy"),
        ({"estimate": {"unit": "EUR", "amount": 1}}, "estimate.unit"),
        ({"metadata": []}, "metadata"),
        ({"idempotency_key": 5}, "idempotency_key"),
        ({"subject": {"dimensions": {"run": 1}}}, "subject.dimensions[...]"),
        ({"action": {"kind": "k", "name": "n", "tags": ["a", 1]}}, "action.tags[1]"),
    ],
)
def test_a_wrong_type_is_named_by_its_place(changes: dict[str, Any], field: str) -> None:
    assert refused_field(reservation(**changes)) == field


def test_decide_has_no_fields_of_a_hold() -> None:
    assert isinstance(read_body(json.dumps(reservation(ttl_ms=5_000)).encode(), EventBody), InvalidInput)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"a":1}x',
        b"\xff{}",
        b'{"idempotency_key":"a","idempotency_key":"a","subject":{"tenant":"t"}}',
        b'{"metadata":{"a":1,"a":2}}',
        b'{"metadata":{"a":1e999}}',
        b'{"metadata":{"a":NaN}}',
        b'{"metadata":{"a":"\\ud800"}}',
        b'{"metadata":{"\\u0000":1}}',
        b'{"metadata":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"metadata":' + b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1) + b"}",
        b'{"metadata":{"a":' + b"1" * 5_000 + b"}}",
    ],
)
def test_what_is_no_acceptable_json_is_refused_and_never_a_fault(sent: bytes) -> None:
    found = read_body(sent, ReserveBody)
    assert isinstance(found, InvalidInput)
    assert found.message


@pytest.mark.parametrize("text", ["C:\\u0000", "\\\\u0000", "\\ud800"])
def test_text_that_looks_like_an_escape_is_text(text: str) -> None:
    found = read_body(json.dumps(reservation(metadata={"path": text, text: "\u00e4"})).encode(), ReserveBody)
    assert isinstance(found, ReserveBody)
    assert found.metadata == {"path": text, text: "\u00e4"}


def test_nul_behind_a_backslash_is_refused() -> None:
    assert refused_field(reservation(metadata={"path": "\\\0"})) == "body"


def test_a_pair_of_surrogates_is_one_character() -> None:
    sent = json.dumps(reservation(metadata={"face": "\U0001f600"})).encode()
    assert b"\\ud83d" in sent
    found = read_body(sent, ReserveBody)
    assert isinstance(found, ReserveBody)
    assert found.metadata == {"face": "\U0001f600"}
