"""The naive model against the written scenarios: accounting and placement (1.11 and 3.3)."""

from __future__ import annotations

from tests.simulation.scene import (
    ACCOUNT,
    FULL,
    POOL,
    PROJECT_P,
    PROJECT_Q,
    RESERVATION,
    B,
    H,
    M,
    Scene,
    accepted,
)


def test_t35_the_worked_example() -> None:
    """1.11, sentence by sentence."""
    scene = Scene(10)
    scene.grant(6, B, B + 24 * H)
    assert scene.free() == 4
    inside = scene.runs(2)
    assert (scene.figures().used, scene.figures().unused, scene.free()) == (2, 4, 4)
    of_b = scene.runs(4, "B")
    assert scene.free() == 0
    assert scene.try_run("B") == FULL
    inside += scene.runs(4)
    assert scene.figures().used == 10
    assert scene.try_run("A") == FULL
    scene.stop(inside[0])
    assert (scene.figures().used, scene.figures().unused, scene.free()) == (9, 1, 0)
    assert scene.try_run("B") == FULL
    assert scene.try_run("A") == FULL
    assert scene.start(inside[0])[0] == "ok"
    scene.delete(inside[1])
    assert (scene.figures().unused, scene.free()) == (1, 0)
    assert scene.try_run("B") == FULL
    assert scene.oracle.instances[scene.run("A")].grant_id is not None
    scene.delete(of_b[0])
    assert scene.free() == 1
    outside = scene.run("A")
    assert scene.oracle.instances[outside].grant_id is None
    scene.oracle.meter(B + H)
    assert scene.metered("vm.reserved.hours", instance=outside) == {0: 1}


def test_t37_a_drop_below_the_promise_evicts_nobody() -> None:
    scene = Scene()
    scene.grant(8, B, B + 24 * H)
    scene.runs(3)
    scene.runs(2, "B")
    assert scene.free() == 0
    scene.scan(6)
    short = [event.payload for event in scene.shortages()]
    assert [(payload["total"], payload["grantedSlots"]) for payload in short] == [(6, 8)]
    assert scene.free() == -4
    scene.run("A")
    assert scene.figures().used == 6
    assert scene.try_run("A") == FULL
    assert len(scene.oracle.instances) == 6


def test_t38_the_restricted_grant_is_filled_first() -> None:
    scene = Scene()
    first = scene.grant(2, B, B + 24 * H, project=PROJECT_P)
    second = scene.grant(3, B, B + 24 * H)
    in_p = scene.runs(5, project=PROJECT_P)
    in_q = scene.run(project=PROJECT_Q)
    assert scene.grants_of([*in_p, in_q], B) == [first, first, second, second, second, None]
    assert scene.free() == 4


def test_t40_a_stopped_member_is_counted_once() -> None:
    scene = Scene(5)
    scene.grant(2, B, B + 24 * H)
    inside = scene.runs(2)
    scene.stop(inside[1])
    assert scene.grants_of([scene.run()], B) == [None]
    figures = scene.figures()
    assert (figures.used, figures.unused, figures.free) == (2, 1, 2)


def test_t41_a_claim_is_no_room_where_there_is_none() -> None:
    scene = Scene(2)
    scene.grant(2, B, B + 24 * H)
    inside = scene.runs(2)
    scene.stop(inside[0])
    scene.scan(1)
    assert scene.start(inside[0]) == FULL


def test_t43_a_stopped_ordinary_instance_holds_nothing_and_starts_afresh() -> None:
    scene = Scene(2)
    ordinary = scene.run()
    scene.stop(ordinary)
    assert scene.free() == 2
    grant = scene.grant(1, B + H, B + 2 * H)
    assert scene.grants_of([ordinary], B + H) == [None]
    assert scene.start(ordinary, B + H)[0] == "ok"
    assert scene.grants_of([ordinary], B + H) == [grant]


def test_t44_the_claim_of_a_stopped_member_ends_with_the_grant() -> None:
    scene = Scene(1)
    scene.grant(1, B, B + H)
    inside = scene.run()
    scene.stop(inside)
    assert scene.try_run("B") == FULL
    assert scene.free(B + H) == 1
    scene.run("B", now=B + H)
    assert scene.start(inside, B + H) == FULL


def test_t47_the_last_idle_slot_is_the_grantees_in_either_order() -> None:
    for order in ("AB", "BA"):
        scene = Scene(2)
        scene.grant(1, B, B + H)
        scene.run("B")
        outcomes = {tenant: scene.try_run(tenant) for tenant in order}
        assert outcomes["A"][0] == "ok"
        assert outcomes["B"] == FULL


def test_t49_an_attached_instance_without_billing_counts_but_never_enters() -> None:
    scene = Scene(4)
    scene.grant(1, B, B + H)
    before = scene.figures()
    attached = accepted(scene.attach("A", "none"))
    after = scene.figures()
    assert (after.used, after.free) == (before.used + 1, before.free - 1)
    scene.grant(2, B + H, B + 2 * H)
    for now in (B, B + H, B + 2 * H):
        assert scene.grants_of([attached], now) == [None]
    scene.oracle.meter(B + 3 * H)
    assert [usage for usage in scene.oracle.usage if usage.instance_id == attached] == []


def test_t50_a_scheduled_grant_protects_nothing_yet() -> None:
    scene = Scene()
    scene.grant(10, B + 24 * H, B + 25 * H)
    assert len(scene.runs(10, "B")) == 10
    assert scene.free(B + 24 * H) == -10
    assert scene.try_run("A", now=B + 24 * H) == FULL


def test_r29_an_attached_normal_instance_waits_for_the_next_boundary() -> None:
    scene = Scene()
    scene.grant(1, B, B + H)
    attached = accepted(scene.attach("A", "normal"))
    assert scene.grants_of([attached], B) == [None]
    later = scene.grant(1, B + H, B + 2 * H)
    assert scene.grants_of([attached], B + H) == [later]


def test_b10_giving_back_twice_gives_once() -> None:
    scene = Scene()
    ordinary = scene.run()
    assert scene.free() == 9
    for give_back in (scene.stop, scene.delete, scene.delete):
        assert give_back(ordinary)[0] == "ok"
        assert scene.free() == 10


def test_d16_the_providers_own_count_is_in_use_too() -> None:
    scene = Scene()
    scene.runs(2)
    scene.scan(10, in_use=5)
    assert (scene.figures().used, scene.free()) == (5, 5)
    scene.scan(10, in_use=1)
    assert (scene.figures().used, scene.free()) == (2, 8)


def test_d32_an_own_slot_on_any_reservation_of_the_flavor_comes_first() -> None:
    scene = Scene(1)
    scene.oracle.add_reservation(ACCOUNT, "zone/second", total=2, pool_id=POOL)
    grant = accepted(scene.try_grant(1, B, B + H, reservation="zone/second"))
    placed = []
    for _ in range(3):
        outcome = scene.oracle.create_instance_of_flavor(B, tenant_id="A", pool_id=POOL, flavor="flavor")
        placed.append(scene.oracle.instances[accepted(outcome)])
    first, second = (ACCOUNT, RESERVATION), (ACCOUNT, "zone/second")
    assert [each.reservation_key for each in placed] == [second, first, second]
    assert [each.grant_id for each in placed] == [grant, None, None]
    assert scene.oracle.create_instance_of_flavor(B, tenant_id="A", pool_id=POOL, flavor="flavor") == FULL


def test_d27_a_start_is_placed_over_every_reservation_that_is_offered_now() -> None:
    scene = Scene(1)
    scene.oracle.add_reservation(ACCOUNT, "zone/second", total=1, pool_id=POOL)
    first, second = (ACCOUNT, RESERVATION), (ACCOUNT, "zone/second")
    stopped = scene.run()
    scene.stop(stopped)
    scene.run("B")
    assert scene.start(stopped, B + M) == ("ok", stopped)
    assert scene.oracle.instances[stopped].reservation_key == second
    scene.stop(stopped, B + 2 * M)
    scene.oracle.unbind(B + 2 * M, account_id=ACCOUNT, reservation_id="zone/second")
    assert scene.start(stopped, B + 3 * M) == FULL
    scene.scan(2, B + 3 * M, reported_too={"zone/second": 1})
    assert scene.start(stopped, B + 4 * M) == ("ok", stopped)
    assert scene.oracle.instances[stopped].reservation_key == first


def test_d32_a_start_takes_an_own_slot_on_any_reservation_first() -> None:
    scene = Scene(2)
    scene.oracle.add_reservation(ACCOUNT, "zone/second", total=1, pool_id=POOL)
    stopped = scene.run()
    scene.stop(stopped)
    grant = accepted(scene.try_grant(1, B, B + H, reservation="zone/second"))
    assert scene.start(stopped)[0] == "ok"
    assert scene.grants_of([stopped], B) == [grant]


def test_b23_a_change_of_project_with_a_start_happens_whole_or_not_at_all() -> None:
    scene = Scene(1)
    restricted = scene.grant(1, B, B + H, project=PROJECT_P)
    moved = scene.run(project=PROJECT_P)
    scene.stop(moved)
    refused = scene.oracle.move_instance(B, instance_id=moved, project_id=PROJECT_Q, start=True)
    assert refused == FULL
    assert scene.oracle.instances[moved].project_id == PROJECT_P
    assert scene.grants_of([moved], B) == [restricted]
    assert scene.start(moved)[0] == "ok"


def test_d39_a_change_of_project_leaves_a_grant_that_no_longer_fits() -> None:
    scene = Scene()
    restricted = scene.grant(1, B, B + H, project=PROJECT_P)
    moved = scene.run(project=PROJECT_P)
    assert scene.grants_of([moved], B) == [restricted]
    scene.oracle.move_instance(B + 15 * M, instance_id=moved, project_id=PROJECT_Q)
    assert scene.grants_of([moved], B + 15 * M) == [None]
    scene.oracle.meter(B + H)
    assert scene.metered("vm.reserved.hours", instance=moved)[0] == 0.75
