"""The auditor finds what is wrong: in rows with one thing bent, and in models with a classic fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation import auditor
from tests.simulation.histories import random_history
from tests.simulation.oracle import Oracle
from tests.simulation.oracle_rows import HOUR_MS, Grant, Instance, Reservation, age, hours_of
from tests.simulation.player import Player, new_world
from tests.simulation.scene import PROJECT_P, PROJECT_Q, B, H, M, Scene

Bent = dict[str, Any]


def clean_rows() -> Bent:
    """A restricted grant with two members (one stopped), an overflow instance, a renewal, a cancelled one, a shortage.

    g0 (2 slots for p) hands i0 over to g1 at B+2H; g2 is cancelled; i2 is overflow of A, i3 is B's.
    """
    scene = Scene()
    first = scene.grant(2, B, B + 2 * H, project=PROJECT_P)
    scene.grant(1, B + 2 * H, B + 9 * H)
    cancelled = scene.grant(1, B + 5 * H, B + 6 * H)
    running = scene.runs(3, project=PROJECT_P)
    scene.run("B", now=B + M)
    scene.stop(running[1], B + 30 * M)
    scene.end(cancelled, B + 40 * M)
    scene.scan(1, B + 50 * M)
    scene.scan(10, B + 55 * M)
    scene.amend(first, B + 60 * M, slots=3)
    scene.oracle.meter(B + 4 * H)
    return dict(scene.oracle.rows(B + 4 * H, metered_at=B + 4 * H))


def bend(kind: str, index: int, **changes: Any) -> Callable[[Bent], None]:
    return lambda rows: rows[kind][index].update(changes)


def drop(kind: str, index: int) -> Callable[[Bent], None]:
    return lambda rows: rows[kind].pop(index)


def double(kind: str, index: int) -> Callable[[Bent], None]:
    return lambda rows: rows[kind].append(rows[kind][index])


def usage_index(rows: Bent, meter: str) -> int:
    return next(index for index, usage in enumerate(rows["usage"]) if usage["meter"] == meter)


def more_usage(meter: str) -> Callable[[Bent], None]:
    return lambda rows: rows["usage"][usage_index(rows, meter)].update(
        quantity_ms=rows["usage"][usage_index(rows, meter)]["quantity_ms"] + HOUR_MS * 5
    )


def no_usage(meter: str) -> Callable[[Bent], None]:
    return lambda rows: rows["usage"].pop(usage_index(rows, meter))


SLOT, INSIDE, RESERVED = "vm.grant.slot.hours", "vm.grant.usage.hours", "vm.reserved.hours"

BENT_TABLE: dict[str, tuple[str, Callable[[Bent], None]]] = {
    "a member too many": ("P1", lambda rows: rows["instances"][2].update(grant_id=rows["grants"][1]["grant_id"])),
    "a member of another tenant": ("P1", bend("instances", 0, tenant_id="B")),
    "a member that is billed nothing": ("P1", bend("instances", 0, billing="none")),
    "a member of another project": ("P1", bend("grants", 1, project_id=PROJECT_Q)),
    "a member on another reservation": ("P1", bend("instances", 0, reservation_id="zone/other")),
    "a member of an ended grant": (
        "P1",
        lambda rows: rows["instances"][1].update(grant_id=rows["grants"][0]["grant_id"]),
    ),
    "a stretch before the term": ("P1", bend("grants", 1, starts_at=B + 3 * H, pieces=[(B + 3 * H, 1)])),
    "a wrong figure": ("P2", bend("reservations", 0, free=99)),
    "an external instance too many": ("P2", bend("reservations", 0, external_in_use=1)),
    "a missing event": ("P4", drop("events", 1)),
    "an event at the wrong instant": ("P4", bend("events", 1, occurred_at=B + 1)),
    "an end told with the old term": ("P4", bend("grants", 0, slots=4)),
    "an event in another stream": ("P4", bend("events", 0, tenant_id="B")),
    "a gap in a stream": ("events", bend("events", 2, seq=77)),
    "an event twice": ("events", double("events", 3)),
    "an event id twice": ("events", lambda rows: rows["events"][1].update(event_id=rows["events"][0]["event_id"])),
    "an event in the future": ("events", bend("events", 0, occurred_at=B + 999 * H)),
    "slot hours too many": ("P5", more_usage(SLOT)),
    "slot hours missing": ("P5", no_usage(SLOT)),
    "slot hours twice": ("P5", lambda rows: rows["usage"].append(rows["usage"][usage_index(rows, SLOT)])),
    "slot hours of a cancelled grant": ("P5", bend("grants", 0, cancelled_at=B)),
    "slot hours before the hour is over": ("P5", bend("usage", 0, hour_start=B + 4 * H)),
    "slot hours to another tenant": ("P5", bend("usage", 0, tenant_id="B")),
    "more use than commitment": ("P6", more_usage(INSIDE)),
    "an overlap of segments": ("P7", lambda rows: rows["segments"].append({**rows["segments"][0], "to_ms": B + 3 * H})),
    "a running instance that nobody bills": ("P7", lambda rows: rows["segments"].remove(open_segment(rows))),
    "a gap in the bill": ("P7", bend("segments", 0, to_ms=B + M)),
    "a grant's stretch billed as reserved": ("P7", bend("segments", 0, mode="reserved")),
    "an ordinary slot out of nothing": ("P8", bend("placements", 2, free_before=0, free_after=-1)),
    "an ordinary slot that costs two": ("P8", bend("placements", 2, free_after=0)),
    "an own slot that costs others": ("P8", bend("placements", 0, free_after=0)),
    "more granted than there was": (
        "P9",
        bend("grants", 0, admissions=[{"order": 1, "from_ms": B, "total": 1}]),
    ),
    "use that no segment knows": ("usage", more_usage(RESERVED)),
    "use that was never written": ("usage", no_usage(RESERVED)),
    "a source key twice": ("usage", lambda rows: rows["usage"][1].update(source_key=rows["usage"][0]["source_key"])),
}


def open_segment(rows: Bent) -> Bent:
    found: Bent = next(segment for segment in rows["segments"] if segment["to_ms"] is None)
    return found


def test_good_rows_pass() -> None:
    assert auditor.audit_all(clean_rows()) == []
    assert auditor.audit_p3(clean_rows(), clean_rows()) == []


@pytest.mark.parametrize("name", BENT_TABLE)
def test_bent_rows_are_found(name: str) -> None:
    prefix, bending = BENT_TABLE[name]
    rows = clean_rows()
    bending(rows)
    violations = auditor.audit_all(rows)
    assert any(violation.startswith(f"{prefix}:") for violation in violations), violations


def test_a_start_that_is_told_before_an_end_of_its_instant_is_found() -> None:
    """T89: the renewal at B + 2 h."""
    rows = clean_rows()
    assert auditor.audit_order(rows) == []
    at_once = [event for event in rows["events"] if event["occurred_at"] == B + 2 * H]
    assert [event["type"].rpartition(".")[2] for event in at_once] == ["ended", "active"]
    at_once[0]["seq"], at_once[1]["seq"] = at_once[1]["seq"], at_once[0]["seq"]
    (found,) = auditor.audit_order(rows)
    assert "is told after the start of" in found


@pytest.mark.parametrize("kind", ["segments", "grants", "events", "instances", "placements"])
def test_a_twin_that_differs_is_found(kind: str) -> None:
    twin = clean_rows()
    twin[kind].pop()
    assert auditor.audit_p3(clean_rows(), twin) != []


def test_rows_of_removed_grants_are_left_alone() -> None:
    """Usage, segments and events outlive the grants of a deleted account (R46)."""
    rows = clean_rows()
    rows["grants"] = []
    for instance in rows["instances"]:
        instance["grant_id"] = None
    assert [violation for violation in auditor.audit_all(rows) if not violation.startswith("P2")] == []


# --- models with a fault ----------------------------------------------------------------------------------------------


class TakesInWithoutCounting(Oracle):
    def _has_room(self, grant: Grant, instance: Instance, at: int) -> bool:
        return self.serves(grant, at, tenant_id=instance.tenant_id, project_id=instance.project_id)


class TakesInTheUnbilled(Oracle):
    def _apply_start(self, grant: Grant) -> None:
        super()._apply_start(grant)
        for instance in sorted(self.attached_to(self.reservations[grant.reservation_key]), key=age):
            outside = instance.state == "running" and instance.grant_id is None
            if outside and self._has_room(grant, instance, grant.starts_at):
                self._enter(instance, grant, grant.starts_at)


class EndsTwice(Oracle):
    def _apply_end(self, grant: Grant) -> None:
        super()._apply_end(grant)
        self._publish_grant(grant, "ended", occurred_at=grant.ends_at)


class BillsWholeHours(Oracle):
    def _meter_slots(self, grant: Grant, now: int, written: set[str]) -> None:
        before = len(self.usage)
        super()._meter_slots(grant, now, written)
        for usage in self.usage[before:]:
            usage.quantity_ms = -(-usage.quantity_ms // HOUR_MS) * HOUR_MS


class MetersFromAWatermark(Oracle):
    """Takes it that an hour once passed owes nothing more (R41, B17)."""

    def _meter_slots(self, grant: Grant, now: int, written: set[str]) -> None:
        passed = hours_of(grant.starts_at, self._metered_until)
        super()._meter_slots(grant, now, written | {f"slot:{grant.grant_id}:{hour}" for hour in passed})

    _metered_until = 0

    def meter(self, now: int) -> tuple[str, str | dict[str, object]]:
        outcome = super().meter(now)
        self._metered_until = max(self._metered_until, now // HOUR_MS * HOUR_MS)
        return outcome


class WaitsForTheReconciler(Oracle):
    """Applies boundaries in passes only, so a late pass lets strangers in (R15, R16)."""

    def _open(self, now: int, *reservations: Reservation) -> int:
        return max([now, *(reservation.clock_at for reservation in reservations)])

    def advance(self, now: int) -> tuple[str, str | dict[str, object]]:
        for reservation in self.reservations.values():
            self._apply_boundaries(reservation, now)
        return ("ok", {})


class SellsIdleSlots(Oracle):
    def _has_ordinary_slot(self, reservation: Reservation, now: int) -> bool:
        figures = self._figures(reservation, now)
        return figures.used < figures.total


class ForgetsToCloseTheBill(Oracle):
    def _cease_running(self, instance: Instance, at: int) -> None:
        super()._cease_running(instance, at)
        mine = [segment for segment in self.segments if segment.instance_id == instance.instance_id]
        if mine and mine[-1].to_ms == at:
            mine[-1].to_ms = None


class AdmitsOverTheTotal(Oracle):
    """Decides each create against a total that another has promised already (B8)."""

    def grants_on(self, reservation: Reservation) -> list[Grant]:
        grants = super().grants_on(reservation)
        return grants[1:] if self._admitting else grants

    _admitting = False

    def _create_fault(self, *arguments: Any) -> tuple[str, str | dict[str, object]] | None:
        fault = super()._create_fault(*arguments)
        self._admitting = fault is None
        return fault

    def create_grant(self, now: int, **arguments: Any) -> tuple[str, str | dict[str, object]]:
        outcome = super().create_grant(now, **arguments)
        self._admitting = False
        return outcome

    def _apply_boundaries(self, reservation: Reservation, now: int) -> None:
        self._admitting = False
        super()._apply_boundaries(reservation, now)


FAULTY = [
    (TakesInWithoutCounting, "P1"),
    (TakesInTheUnbilled, "P7"),
    (EndsTwice, "events"),
    (BillsWholeHours, "P5"),
    (MetersFromAWatermark, "P5"),
    (WaitsForTheReconciler, "P3"),
    (SellsIdleSlots, "P8"),
    (ForgetsToCloseTheBill, "P7"),
    (AdmitsOverTheTotal, "P9"),
]


def violations_of(model: type[Oracle], seed: int) -> list[str]:
    """What the auditor says of one history on `model`, metered to its end, alone and beside an eager twin."""
    players = []
    for eager in (False, True):
        player = Player(new_world(model=model))
        for step in random_history(seed, 50):
            if eager:
                player.oracle.advance(step.at)
            player.play(step)
        players.append(player)
    lazy, twin = players
    end = lazy.now // HOUR_MS * HOUR_MS + 24 * HOUR_MS
    lazy.oracle.meter(end)
    rows = lazy.oracle.rows(end, metered_at=end)
    twin.oracle.meter(end)
    return auditor.audit_all(rows) + auditor.audit_p3(rows, twin.oracle.rows(end))


def test_the_model_itself_shows_no_fault() -> None:
    assert [violations_of(Oracle, seed) for seed in range(15)] == [[]] * 15


@pytest.mark.parametrize(("model", "prefix"), FAULTY)
def test_a_model_with_a_classic_fault_is_found_within_a_few_histories(model: type[Oracle], prefix: str) -> None:
    for seed in range(60):
        if any(violation.startswith(f"{prefix}:") for violation in violations_of(model, seed)):
            return
    pytest.fail(f"sixty histories did not show {model.__name__}")
