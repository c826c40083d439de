"""The naive model against the written scenarios: guards, deletions, scans (3.6)."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.simulation.oracle_rows import Outcome
from tests.simulation.scene import (
    ACCOUNT,
    OTHER_ACCOUNT,
    POOL,
    PROJECT_P,
    RESERVATION,
    B,
    H,
    M,
    Scene,
    accepted,
    ids_of,
)


def unbind(scene: Scene, now: int) -> Outcome:
    return scene.oracle.unbind(now, account_id=ACCOUNT, reservation_id=RESERVATION)


def delete_account(scene: Scene, now: int) -> Outcome:
    return scene.oracle.delete_account(now, account_id=ACCOUNT)


def withdraw(scene: Scene, now: int) -> Outcome:
    return scene.oracle.withdraw(now, pool_id=POOL, tenant_id="A")


@pytest.mark.parametrize("guarded", [unbind, delete_account, withdraw])
@pytest.mark.parametrize("starts_at", [B, B + H])
def test_t77_live_grants_guard_their_reservation(guarded: object, starts_at: int) -> None:
    assert callable(guarded)
    scene = Scene()
    live = [scene.grant(1, starts_at, B + 2 * H) for _ in range(3)]
    cancelled = scene.grant(1, B + H, B + 2 * H)
    scene.end(cancelled, B)
    assert ids_of(guarded(scene, B)) == sorted(live)
    assert ids_of(guarded(scene, B + 2 * H - 1)) == sorted(live)


def test_d29_another_offer_lets_a_withdrawal_pass() -> None:
    scene = Scene()
    scene.grant(1, B, B + H)
    scene.oracle.offer(B, pool_id=POOL, tenant_id="*")
    assert withdraw(scene, B)[0] == "ok"
    assert scene.oracle.withdraw(B, pool_id=POOL, tenant_id="*")[0] == "INVALID_STATE"


def test_t79_an_account_goes_once_the_last_hour_is_metered() -> None:
    scene = Scene()
    ended = scene.grant(1, B, B + 3 * H, key="k")
    cancelled = scene.grant(1, B + H, B + 3 * H)
    scene.end(cancelled, B)
    now = B + 3 * H + 500
    scene.oracle.meter(B + 3 * H - 1)
    assert ids_of(delete_account(scene, now)) == [ended]
    scene.oracle.meter(now)
    assert delete_account(scene, now) == ("ok", ACCOUNT)
    assert scene.oracle.grants == {}
    assert scene.metered("vm.grant.slot.hours", grant=ended) == {0: 1, 1: 1, 2: 1}
    assert scene.try_grant(1, B, B + 9 * H, now=now, key="k")[0] == "INVALID_INPUT", "the key is free again (D19)"
    assert scene.try_grant(1, now, B + 9 * H, now=now, key="k") == ("NOT_FOUND", {})
    assert delete_account(scene, now) == ("NOT_FOUND", {})


def test_t80_unbind_does_not_wait_for_metering() -> None:
    scene = Scene()
    scene.grant(1, B, B + H)
    assert unbind(scene, B + H) == ("ok", RESERVATION)


def test_r48_end_on_another_account_finds_nothing() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + H)
    assert scene.end(grant, B, account=OTHER_ACCOUNT) == ("NOT_FOUND", {})
    assert scene.end("rgrant_" + "0" * 26, B) == ("NOT_FOUND", {})


def test_r53_a_deleted_tenants_grants_are_over() -> None:
    scene = Scene()
    wide = scene.grant(2, B, B + 5 * H)
    other = scene.grant(2, B, B + 6 * H)
    later = scene.grant(1, B + 2 * H, B + 5 * H)
    of_b = scene.grant(1, B, B + 5 * H, tenant="B")
    running = scene.runs(2)
    now = B + 90 * M
    assert scene.oracle.delete_tenant(now, tenant_id="A") == ("ok", "A")
    assert scene.oracle.delete_tenant(now + H, tenant_id="A") == ("ok", "A")
    assert scene.events(wide, B + 9 * H) == [("created", B), ("active", B), ("ended", now)]
    assert scene.events(later, B + 9 * H) == [("created", B), ("cancelled", now)]
    assert all("reason" not in event.payload for event in scene.oracle.events["A"])
    assert scene.row(of_b).ends_at == B + 5 * H
    assert scene.grants_of(running, now) == [None, None], "no hand-over to a grant that ends at the same moment"
    scene.oracle.meter(B + 2 * H)
    assert scene.metered("vm.grant.slot.hours", grant=other) == {0: 2, 1: 1}


def test_d30_the_grant_of_a_deleted_project_bills_and_serves_nobody() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + H, project=PROJECT_P)
    scene.oracle.delete_project(B, project_id=PROJECT_P)
    assert scene.grants_of([scene.run()], B) == [None]
    assert scene.try_run(project=PROJECT_P)[0] == "INVALID_INPUT"
    scene.oracle.meter(B + H)
    assert scene.metered("vm.grant.slot.hours", grant=grant) == {0: 1}


def test_t83_a_reservation_that_is_gone() -> None:
    scene = Scene()
    active = scene.grant(3, B, B + 5 * H)
    scheduled = scene.grant(1, B + 3 * H, B + 5 * H)
    inside, outside = scene.run("A"), scene.run("B")
    stopped = scene.run("B")
    scene.stop(stopped)
    gone = B + 90 * M
    assert scene.scan(None, gone - 1, complete=False)[0] == "ok"
    assert scene.row(active).ends_at == B + 5 * H, "an incomplete scan concludes nothing (R54)"
    for now in (gone, gone + M):
        scene.scan(None, now)
    assert scene.row(active).ends_at == gone
    assert (scene.row(scheduled).cancelled_at, scene.row(scheduled).starts_at) == (gone, B + 3 * H)
    reasons = [(event.type.split(".")[1], event.payload.get("reason")) for event in scene.oracle.events["A"]]
    assert reasons == [
        ("created", None),
        ("active", None),
        ("created", None),
        ("ended", "reservation-gone"),
        ("cancelled", "reservation-gone"),
    ]
    assert scene.try_grant(1, gone, B + 9 * H, now=gone) == ("INVALID_STATE", {"state": "gone"})
    scene.oracle.meter(B + 3 * H)
    assert sum(scene.metered("vm.grant.slot.hours", grant=active).values()) == Fraction(9, 2)
    assert scene.metered("vm.ondemand.hours", instance=inside) == {1: Fraction(1, 2), 2: 1}
    assert scene.metered("vm.ondemand.hours", instance=outside) == {1: Fraction(1, 2), 2: 1}
    assert scene.metered("vm.ondemand.hours", instance=stopped) == {}


def test_d14_a_reservation_that_is_back() -> None:
    scene = Scene()
    old = scene.grant(3, B, B + 9 * H)
    running = scene.run()
    scene.scan(None, B + M)
    assert unbind(scene, B + M)[0] == "ok", "D48"
    scene.oracle.add_pool("unused")
    scene.oracle.bind(B + M, account_id=ACCOUNT, reservation_id=RESERVATION, pool_id=POOL)
    assert scene.oracle.reservations[(ACCOUNT, RESERVATION)].pool_id is None, "nothing is bound to what is gone"
    scene.scan(10, B + 2 * M)
    scene.oracle.bind(B + 2 * M, account_id=ACCOUNT, reservation_id=RESERVATION, pool_id=POOL)
    assert scene.row(old).ends_at == B + M
    assert scene.figures(B + 2 * M).used == 0
    new = scene.grant(1, B + 3 * M, B + 9 * H, now=B + 2 * M)
    assert scene.grants_of([running], B + 3 * M) == [None]
    attached = accepted(scene.attach("A", "normal", B + 4 * M, existing_id=running))
    assert attached == running
    later = scene.grant(1, B + 5 * M, B + 9 * H, now=B + 4 * M)
    assert scene.grants_of([running], B + 5 * M) == [later]
    assert scene.row(new).ends_at == B + 9 * H
    scene.oracle.meter(B + H)
    assert scene.metered("vm.ondemand.hours", instance=running) == {0: Fraction(3, 60)}
    assert scene.metered("vm.reserved.hours", instance=running) == {0: Fraction(1, 60)}


def test_t85_t86_one_event_for_each_change_that_leaves_it_short() -> None:
    scene = Scene()
    first = scene.grant(5, B, B + 4 * H)
    second = scene.grant(3, B + H, B + 3 * H)
    scene.grant(6, B + 5 * H, B + 6 * H)
    for total in (10, 9, 8, 7, 7, 6, 7, 10, 7):
        scene.scan(total)
    told = [(event.payload["total"], event.payload["grantedSlots"]) for event in scene.shortages()]
    assert told == [(7, 8), (6, 8), (7, 8), (7, 8)]
    assert all(event.payload["grantIds"] == [first, second] for event in scene.shortages())


def test_r58_nothing_left_is_short_and_not_gone() -> None:
    scene = Scene()
    grant = scene.grant(1, B, B + H)
    scene.scan(0)
    assert [event.payload["total"] for event in scene.shortages()] == [0]
    assert scene.row(grant).ends_at == B + H


def test_t88_a_scan_and_a_create_in_either_order() -> None:
    scene = Scene()
    scene.scan(6)
    assert scene.try_grant(7, B, B + H) == ("CAPACITY_UNAVAILABLE", {"total": 6, "granted": 0})
    scene = Scene()
    scene.grant(7, B, B + H)
    scene.scan(6)
    assert [(event.payload["total"], event.payload["grantedSlots"]) for event in scene.shortages()] == [(6, 7)]
