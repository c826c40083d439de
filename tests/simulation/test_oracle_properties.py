"""The naive model on random histories: P1 to P9 by the auditor, P11 to P14 by playing a history in two ways."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.auditor import audit_all, audit_p3
from tests.simulation.histories import DAY_MS, HOUR_MS, REPEATABLE, WEIGHTS, Step, random_history, shifted
from tests.simulation.oracle import Oracle
from tests.simulation.oracle_rows import Grant, peak
from tests.simulation.player import SKIPPED, Player
from tests.simulation.scene import B, H, M, Scene

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def bounded(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None)


def metered_end(player: Player) -> int:
    """An instant by which every grant of a history is over and its last hour with it."""
    last = max([player.now, *(grant.ends_at for grant in player.oracle.grants.values())])
    return (last // HOUR_MS + 1) * HOUR_MS


@given(seed=SEEDS)
@bounded(60)
def test_p1_to_p9_hold_while_a_history_runs_and_after_it(seed: int) -> None:
    player = Player()
    for number, step in enumerate(random_history(seed, 60)):
        player.play(step)
        if number % 12 == 0:
            assert audit_all(player.oracle.rows(step.at)) == []
    for metered_at in (player.now, metered_end(player)):
        player.oracle.meter(metered_at)
        assert audit_all(player.oracle.rows(metered_at, metered_at=metered_at)) == []
    assert all(player.oracle.is_metered_out(grant) for grant in player.oracle.grants.values())


@given(seed=SEEDS)
@bounded(50)
def test_p3_lateness_changes_nothing_but_delay(seed: int) -> None:
    """One twin applies every boundary at its millisecond, the other only when a command needs it."""
    history = [step for step in random_history(seed, 60) if step.command != "advance"]
    lazy, eager = Player(), Player()
    for step in history:
        edges = {edge for grant in eager.oracle.grants.values() for edge in (grant.starts_at, grant.ends_at)}
        for edge in sorted(edge for edge in edges if eager.now <= edge <= step.at):
            eager.oracle.advance(edge)
        assert lazy.play(step) == eager.play(step)
    end = metered_end(lazy)
    for player in (lazy, eager):
        player.oracle.meter(end)
    assert audit_p3(lazy.oracle.rows(end), eager.oracle.rows(end)) == []
    assert bill(lazy.oracle) == bill(eager.oracle)


def bill(oracle: Oracle, *, earlier_by: int = 0) -> Counter[tuple[str, str, str, str, int]]:
    """Sums of usage by tenant, meter, grant, instance and hour, the hours moved back by `earlier_by`."""
    sums: Counter[tuple[str, str, str, str, int]] = Counter()
    for usage in oracle.usage:
        hour = usage.hour_start - earlier_by
        sums[(usage.tenant_id, usage.meter, str(usage.grant_id), str(usage.instance_id), hour)] += usage.quantity_ms
    return Counter({entry: quantity for entry, quantity in sums.items() if quantity != 0})


@given(seed=SEEDS)
@bounded(25)
def test_p11_a_repeated_command_changes_nothing(seed: int) -> None:
    player = Player()
    for step in random_history(seed, 40):
        arguments = player.resolved(step)
        outcome = player.play(step)
        if arguments is None or step.command not in REPEATABLE | {"amend_grant"}:
            continue
        before = player.oracle.rows(step.at)
        again = getattr(player.oracle, step.command)(step.at, **arguments)
        assert player.oracle.rows(step.at) == before, step
        if step.command == "amend_grant" and outcome[0] == "ok":
            assert again[0] == "CONFLICT"
        elif step.command != "delete_account":
            assert again == outcome, step


@given(seed=SEEDS)
@bounded(20)
def test_p12_a_second_pass_of_the_jobs_changes_nothing(seed: int) -> None:
    history = random_history(seed, 50)
    player = Player().play_all(history)
    for now in (player.now, metered_end(player)):
        for scan in [step for step in history if step.command == "scan"][-2:]:
            player.play(scan._replace(at=now))
        player.oracle.meter(now)
        before = player.oracle.rows(now)
        player.oracle.advance(now)
        player.oracle.meter(now)
        for scan in [step for step in history if step.command == "scan"][-1:]:
            player.play(scan._replace(at=now))
        assert player.oracle.rows(now) == before


@given(seed=SEEDS, hours=st.integers(min_value=1, max_value=24 * 400))
@bounded(20)
def test_p14_a_history_moved_by_whole_hours_moves_its_bill(seed: int, hours: int) -> None:
    history = random_history(seed, 50)
    here, there = Player().play_all(history), Player().play_all(shifted(history, hours * H))
    here.oracle.meter(metered_end(here))
    there.oracle.meter(metered_end(there))
    assert [outcome[0] for outcome in here.outcomes] == [outcome[0] for outcome in there.outcomes]
    assert bill(here.oracle) == bill(there.oracle, earlier_by=hours * H)


# --- P13 --------------------------------------------------------------------------------------------------------------


def play_cut(seed: int, *, cut: bool, only_additions: bool) -> Oracle:
    """One grant of A, whole or cut in two at a random millisecond, and a random crowd of A's and B's instances.

    `only_additions`: none of A's instances is stopped or deleted. A slot that frees in mid-term pulls nobody in
    (R35) and a stopped member is not renewed (R36), so otherwise the cut itself is a boundary that moves instances,
    and only the committed slots are bound to cost the same.
    """
    chance = random.Random(seed)
    scene = Scene(12)
    slots, length = chance.randrange(1, 7), chance.randrange(2, 6 * H)
    starts_at = B + chance.randrange(2 * H)
    middle = starts_at + chance.randrange(1, length)
    for from_at, to_at in (
        ((starts_at, middle), (middle, starts_at + length)) if cut else ((starts_at, starts_at + length),)
    ):
        scene.grant(slots, from_at, to_at)
    running: dict[str, list[str]] = defaultdict(list)
    now = B
    for _ in range(25):
        now += chance.randrange(40 * M)
        tenant = chance.choice("AB")
        deed = chance.choice(["run", "run", "stop", "start", "delete"])
        if deed == "run" or not running[tenant]:
            code, answer = scene.try_run(tenant, now=now)
            running[tenant] += [str(answer)] if code == "ok" else []
        elif tenant == "B" or not only_additions:
            getattr(scene, deed)(chance.choice(running[tenant]), now)
    scene.oracle.meter(B + 48 * H)
    return scene.oracle


@given(seed=SEEDS)
@bounded(40)
def test_p13_a_grant_cut_in_two_leaves_every_bill_unchanged(seed: int) -> None:
    def by_hour(oracle: Oracle) -> Counter[tuple[str, str, str, int]]:
        sums: Counter[tuple[str, str, str, int]] = Counter()
        for (tenant_id, meter, _, instance_id, hour), quantity in bill(oracle).items():
            sums[(tenant_id, meter, instance_id, hour)] += quantity
        return sums

    whole, cut = (play_cut(seed, cut=cut, only_additions=True) for cut in (False, True))
    assert by_hour(whole) == by_hour(cut)


@given(seed=SEEDS)
@bounded(40)
def test_p13_a_grant_cut_in_two_commits_the_same_slot_hours(seed: int) -> None:
    def committed(oracle: Oracle) -> Counter[int]:
        sums: Counter[int] = Counter()
        for usage in oracle.usage:
            if usage.meter == "vm.grant.slot.hours":
                sums[usage.hour_start] += usage.quantity_ms
        return sums

    whole, cut = (play_cut(seed, cut=cut, only_additions=False) for cut in (False, True))
    assert committed(whole) == committed(cut)


# --- the pieces the properties stand on -------------------------------------------------------------------------------

TERMS = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4), st.booleans())


@given(terms=st.lists(TERMS, max_size=6), from_at=st.integers(0, 11), length=st.integers(1, 8))
@bounded(150)
def test_the_peak_is_the_highest_sum_of_any_instant(
    terms: list[tuple[int, int, int, bool]], from_at: int, length: int
) -> None:
    grants = [
        Grant(
            grant_id=str(number),
            tenant_id="A",
            project_id=None,
            account_id="",
            reservation_id="",
            slots=slots,
            starts_at=min(one, other),
            ends_at=max(one, other),
            created_at=0,
            pool_id="",
            region="",
            provider="",
            pieces=[(min(one, other), slots)],
            cancelled_at=0 if cancelled else None,
        )
        for number, (one, other, slots, cancelled) in enumerate(terms)
    ]
    sums = []
    for instant in range(from_at, from_at + length):
        sums.append(0)
        for one, other, slots, cancelled in terms:
            if not cancelled and min(one, other) <= instant < max(one, other):
                sums[-1] += slots
    assert peak(grants, from_at, from_at + length) == max(sums)


def test_a_history_depends_on_its_seed_alone() -> None:
    assert random_history(7, 80) == random_history(7, 80)
    assert random_history(7, 80) != random_history(8, 80)
    assert len(random_history(7, 80)) == 80
    instants = [step.at for step in random_history(7, 200)]
    assert instants == sorted(instants)
    without = random_history(7, 200, excluded=frozenset({"scan", "move_instance"}))
    assert not {"scan", "move_instance"} & {step.command for step in without}


def test_histories_reach_every_corner() -> None:
    """What the product is later compared on must happen at all: each command, each refusal, each kind of instant."""
    commands: Counter[str] = Counter()
    codes: Counter[tuple[str, str]] = Counter()
    corners: Counter[str] = Counter()
    for seed in range(60):
        player = Player()
        history = random_history(seed, 80)
        count_instants(history, corners)
        for step in history:
            commands[step.command] += 1
            outcome = player.play(step)
            codes[(step.command, outcome[0])] += 1
            if isinstance(outcome[1], dict):
                codes[(step.command, str(outcome[1].get("reason", outcome[1].get("state"))))] += 1
        player.oracle.meter(metered_end(player))
        count_results(player.oracle, corners)
    assert set(commands) == set(WEIGHTS) - {"late_grant", "retry"}
    for expected in EXPECTED_CODES:
        assert codes[expected] > 0, expected
    for corner in EXPECTED_CORNERS:
        assert corners[corner] > 2, (corner, corners)
    skipped = sum(times for (_, code), times in codes.items() if code == SKIPPED[0])
    assert skipped < 0.12 * sum(commands.values())


EXPECTED_CODES = [
    *[("create_grant", code) for code in ("ok", "CAPACITY_UNAVAILABLE", "CONFLICT", "ACCESS_DENIED", "NOT_FOUND")],
    *[("create_grant", reason) for reason in ("starts-too-early", "ends-not-after-start", "term-over")],
    *[("create_grant", reason) for reason in ("pool-not-offered", "project-not-grantee", "gone", "unbound")],
    *[("create_instance", code) for code in ("ok", "CAPACITY_UNAVAILABLE", "INVALID_STATE")],
    *[("create_instance_of_flavor", code) for code in ("ok", "CAPACITY_UNAVAILABLE")],
    *[("start_instance", code) for code in ("ok", "CAPACITY_UNAVAILABLE", "INVALID_STATE")],
    *[("amend_grant", code) for code in ("ok", "CAPACITY_UNAVAILABLE", "CONFLICT", "INVALID_STATE", "INVALID_INPUT")],
    *[("unbind", code) for code in ("ok", "INVALID_STATE")],
    *[("withdraw", code) for code in ("ok", "INVALID_STATE")],
    *[("delete_account", code) for code in ("ok", "INVALID_STATE")],
    ("end_grant", "NOT_FOUND"),
    ("attach_instance", "ok"),
]
EXPECTED_CORNERS = [
    "at an edge",
    "1 ms before an edge",
    "1 ms after an edge",
    "renewal at the same ms",
    "same instant",
    "days",
    "taken in",
    "handed over",
    "correction",
    "short",
    "gone",
    "overflow",
    "restricted",
    "amended in the term",
    "detached",
]


def count_instants(history: list[Step], corners: Counter[str]) -> None:
    edges: set[int] = set()
    ends: set[int] = set()
    before = history[0].at
    for step in history:
        for offset, name in ((0, "at an edge"), (1, "1 ms before an edge"), (-1, "1 ms after an edge")):
            corners[name] += step.at + offset in edges
        corners["same instant"] += step.at == before
        corners["days"] += step.at - before >= DAY_MS
        before = step.at
        if step.command == "create_grant":
            corners["renewal at the same ms"] += step.arguments["starts_at"] in ends
            edges |= {step.arguments["starts_at"], step.arguments["ends_at"]}
            ends.add(step.arguments["ends_at"])


def count_results(oracle: Oracle, corners: Counter[str]) -> None:
    closed = {(segment.instance_id, segment.to_ms): segment for segment in oracle.segments}
    for segment in oracle.segments:
        earlier = closed.get((segment.instance_id, segment.from_ms))
        if earlier is not None:
            corners["taken in"] += (earlier.mode, segment.mode) == ("reserved", "grant")
            corners["handed over"] += earlier.mode == segment.mode == "grant"
            corners["overflow"] += (earlier.mode, segment.mode) == ("grant", "reserved")
            corners["detached"] += segment.mode == "ondemand"
    corners["correction"] += sum(1 for usage in oracle.usage if usage.quantity_ms < 0)
    events = [event for stream in oracle.events.values() for event in stream]
    corners["short"] += sum(1 for event in events if event.type.endswith("capacity-short"))
    corners["gone"] += sum(1 for event in events if "reason" in event.payload)
    for grant in oracle.grants.values():
        corners["restricted"] += grant.project_id is not None
        corners["amended in the term"] += len(grant.pieces) > 1
