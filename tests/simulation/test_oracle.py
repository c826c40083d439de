"""The naive model against the written scenarios: creation, authority, idempotency, reads (3.1, 3.2)."""

from __future__ import annotations

import re

import pytest

from tests.simulation.oracle_rows import Outcome
from tests.simulation.scene import (
    ACCOUNT,
    OTHER_ACCOUNT,
    POOL,
    PROJECT_OF_B,
    RESERVATION,
    B,
    H,
    M,
    Scene,
    reason_of,
    refused,
)

Ask = tuple[int, int, int]  # slots, startsAt, endsAt
OK = "ok"

CAPACITY_TABLE: dict[str, tuple[int, list[tuple[Ask, object]]]] = {
    "T2: nothing fits inside a full day": (
        10,
        [((10, B, B + 24 * H), OK), ((1, B + H, B + 2 * H), refused(10, 10))],
    ),
    "T3: a term that starts where another ends does not overlap it": (
        10,
        [((10, B, B + 2 * H), OK), ((10, B + 2 * H, B + 4 * H), OK)],
    ),
    "T4: one millisecond of overlap is an overlap": (
        10,
        [((10, B, B + 2 * H), OK), ((10, B + 2 * H - 1, B + 4 * H), refused(10, 10))],
    ),
    "T5: the peak counts, not the sum": (
        10,
        [
            ((6, B, B + 2 * H), OK),
            ((6, B + 2 * H, B + 4 * H), OK),
            ((5, B + H, B + 3 * H), refused(10, 6)),
            ((4, B + H, B + 3 * H), OK),
        ],
    ),
    "T11: more slots than the reservation has": (99_999, [((100_000, B, B + H), refused(99_999, 0))]),
    "T13: three of seven": (10, [((3, B, B + H), OK)] * 3 + [((3, B, B + H), refused(10, 9))] * 4),
    "D1: two peaks of six and four across both": (
        10,
        [((6, B, B + H), OK), ((6, B + H, B + 2 * H), OK), ((4, B, B + 2 * H), OK), ((1, B, B + 1), refused(10, 10))],
    ),
}


@pytest.mark.parametrize("name", CAPACITY_TABLE)
def test_creation_is_decided_by_the_peak(name: str) -> None:
    total, asks = CAPACITY_TABLE[name]
    scene = Scene(total)
    for ask, expected in asks:
        outcome = scene.try_grant(*ask)
        assert (outcome[0] if expected == OK else outcome) == expected, ask


def test_t1_a_grant_that_starts_now_is_active_at_once() -> None:
    scene = Scene()
    grant = scene.grant(10, B, B + 24 * H)
    assert [event.type for event in scene.oracle.events["A"]] == [
        "reservation-grant.created",
        "reservation-grant.active",
    ]
    assert scene.oracle.events["A"][0].payload == {
        "grantId": grant,
        "poolId": POOL,
        "slots": 10,
        "startsAt": B,
        "endsAt": B + 24 * H,
    }


TERM_TABLE = [
    ("T7", B - 300_000, B + H, OK),
    ("T7", B - 300_001, B + H, "starts-too-early"),
    ("T8", B, B, "ends-not-after-start"),
    ("T8", B + H, B, "ends-not-after-start"),
    ("T8", B, B + 1, OK),
    ("D20", B - 2, B, "term-over"),
    ("D20", B - 2, B - 1, "term-over"),
    ("R7 before D20", B - 300_001, B - 300_001, "starts-too-early"),
]


@pytest.mark.parametrize(("name", "starts_at", "ends_at", "expected"), TERM_TABLE)
def test_terms(name: str, starts_at: int, ends_at: int, expected: str) -> None:
    outcome = Scene().try_grant(1, starts_at, ends_at)
    assert (outcome[0] if expected == OK else reason_of(outcome)) == (
        OK if expected == OK else ("INVALID_INPUT", expected)
    )


SHAPE_TABLE = [
    ("T12", {"slots": 0}, "slots"),
    ("T12", {"slots": 100_001}, "slots"),
    ("T12", {"slots": True}, "slots"),
    ("T12", {"slots": 1.5}, "slots"),
    ("T20", {"ends_at": 2**53}, "endsAt"),
    ("T20", {"starts_at": "1800000000000"}, "startsAt"),
    ("R2", {"starts_at": -1}, "startsAt"),
    ("D23", {"key": "key\n"}, "idempotencyKey"),
    ("D23", {"reservation_id": "zone large"}, "reservationId"),
    ("D23", {"account_id": ACCOUNT + "\n"}, "accountId"),
    ("D23", {"account_id": "pacct_" + "u" * 26}, "accountId"),
    ("D23", {"grant_tenant_id": "Ä"}, "grantTenantId"),
    ("D23", {"project_id": "prj_short"}, "projectId"),
]


@pytest.mark.parametrize(("name", "change", "field"), SHAPE_TABLE)
def test_shapes_come_before_everything_else(name: str, change: dict[str, object], field: str) -> None:
    """Asked by a stranger on purpose: a wrong shape is told before the authority is looked at (R2)."""
    arguments: dict[str, object] = {
        "tenant_id": "A",
        "account_id": ACCOUNT,
        "reservation_id": RESERVATION,
        "grant_tenant_id": "A",
        "slots": 1,
        "starts_at": B,
        "ends_at": B + H,
        "key": "k",
    }
    create = Scene().oracle.create_grant
    assert create(B, **{**arguments, **change}) == ("INVALID_INPUT", {"field": field})  # type: ignore[arg-type]


def test_t10_a_cancelled_grant_keeps_its_term_and_frees_its_slots() -> None:
    scene = Scene()
    grant = scene.grant(10, B + H, B + 2 * H)
    assert scene.end(grant, B) == ("ok", grant)
    assert (scene.row(grant).ends_at, scene.row(grant).cancelled_at) == (B + 2 * H, B)
    scene.grant(10, B + H, B + 2 * H)
    assert scene.events(grant, B + 3 * H) == [("created", B), ("cancelled", B)]


def test_d2_an_ended_grant_still_counts_for_a_start_in_the_past() -> None:
    scene = Scene()
    ended = scene.grant(10, B, B + H)
    scene.end(ended, B + 10 * M)
    now = B + 12 * M
    assert scene.try_grant(1, B + 9 * M, B + H, now=now) == refused(10, 10)
    assert scene.try_grant(10, B + 10 * M, B + H, now=now)[0] == "ok"


def test_t17_t18_what_the_reservation_and_the_project_must_be() -> None:
    def ask(scene: Scene, **more: str) -> Outcome:
        return scene.try_grant(1, B, B + H, **more)  # type: ignore[arg-type]

    assert ask(Scene(), account=OTHER_ACCOUNT) == ("NOT_FOUND", {})
    for status, pool, state in (("not_ready", POOL, "not_ready"), ("gone", POOL, "gone"), ("ready", None, "unbound")):
        scene = Scene()
        scene.oracle.add_reservation(ACCOUNT, RESERVATION, total=10, pool_id=pool, status=status)
        assert ask(scene) == ("INVALID_STATE", {"state": state})
    assert reason_of(ask(Scene(), tenant="root")) == ("INVALID_INPUT", "pool-not-offered")
    assert reason_of(ask(Scene(), tenant="nobody")) == ("INVALID_INPUT", "pool-not-offered")
    for project in (PROJECT_OF_B, "prj_" + "z" * 26):
        assert reason_of(ask(Scene(), project=project)) == ("INVALID_INPUT", "project-not-grantee")
    scene = Scene()
    scene.oracle.delete_tenant(B, tenant_id="A")
    assert reason_of(ask(scene)) == ("INVALID_INPUT", "pool-not-offered")


def test_t19_ids_have_the_published_shape_and_grow() -> None:
    scene = Scene()
    grants = [scene.grant(1, B, B + H) for _ in range(5)]
    assert all(re.fullmatch(r"rgrant_[0-9a-hjkmnp-tv-z]{26}", grant) and len(grant) == 33 for grant in grants)
    assert grants == sorted(grants)


def test_t22_authority_is_answered_before_existence() -> None:
    assert Scene().try_grant(1, B, B + H, caller="A", reservation="none") == ("ACCESS_DENIED", {})
    assert Scene().try_grant(1, B, B + H, authorized=False, reservation="none") == ("ACCESS_DENIED", {})
    scene = Scene()
    denied = scene.oracle.end_grant(B, tenant_id="A", account_id=ACCOUNT, grant_id="rgrant_none")
    assert denied == ("ACCESS_DENIED", {})


def test_t23_a_retry_returns_the_grant_and_another_request_conflicts() -> None:
    scene = Scene(5)
    grant = scene.grant(5, B, B + H, key="k")
    assert scene.try_grant(5, B, B + H, key="k", now=B + 6 * M) == ("ok", grant)
    assert scene.try_grant(6, B, B + H, key="k", now=B + 6 * M) == ("CONFLICT", {"grantId": grant})
    assert list(scene.oracle.grants) == [grant]
    assert scene.events(grant, B + 6 * M) == [("created", B), ("active", B)]


def test_t28_a_retry_after_the_end_returns_the_ended_grant() -> None:
    scene = Scene()
    grant = scene.grant(5, B, B + H, key="k")
    scene.end(grant, B + 30 * M)
    assert scene.try_grant(5, B, B + H, key="k", now=B + 5 * H) == ("ok", grant)
    assert scene.row(grant).ends_at == B + 30 * M
    assert len(scene.oracle.grants) == 1


def test_r6_a_refused_request_leaves_its_key_usable() -> None:
    scene = Scene()
    assert scene.try_grant(11, B, B + H, key="k") == refused(10, 0)
    assert scene.try_grant(10, B, B + H, key="k")[0] == "ok"


def test_t31_t32_t34_reads() -> None:
    scene = Scene()
    first = scene.grant(1, B, B + H)
    second = scene.grant(1, B + H, B + 2 * H, now=B + M)
    of_b = scene.grant(1, B, B + H, tenant="B", now=B + M)
    scene.end(first, B + 2 * M)
    scene.end(second, B + 2 * M)
    oracle = scene.oracle
    assert oracle.get_grant(tenant_id="A", grant_id=first) == ("ok", first)
    assert oracle.get_grant(tenant_id="B", grant_id=first) == ("NOT_FOUND", {})
    assert oracle.get_grant(tenant_id="root", grant_id=first) == ("ok", first)
    assert oracle.get_grant(tenant_id="A", grant_id=first, authorized=False) == ("ACCESS_DENIED", {})
    assert oracle.list_grants(tenant_id="A") == ("ok", [second, first])
    assert oracle.list_grants(tenant_id="B") == ("ok", [of_b])
    assert oracle.list_grants(tenant_id="root") == ("ok", [])
    assert oracle.list_grants(tenant_id="root", every=True) == ("ok", [of_b, second, first])
    assert oracle.list_grants(tenant_id="A", every=True) == ("ACCESS_DENIED", [])
