"""An auditor of the capacity rules over plain rows, whoever wrote them: the product, a dump, the naive model.

`rows` is a dict; instants are epoch milliseconds. Keys in brackets may be left out, then what needs them is not looked
at. Extra keys are ignored.

    now            instant of the export
    [advanced_at]  instant up to which all boundaries have been applied; only when nothing happened since
    [metered_at]   instant of a metering pass; only when it was the last thing that happened
    reservations   account_id, reservation_id, total, external_in_use, [free: the F that is decided with]
    grants         grant_id, tenant_id, project_id, account_id, reservation_id, slots, starts_at, ends_at, cancelled_at,
                   created_at, pieces: [(from_ms, slots)], [admissions: [{order, from_ms, total}]: each time that
                   capacity was checked, counted over the reservation, from which instant on, against which total]
    instances      instance_id, tenant_id, project_id, account_id, reservation_id (both None when on no reservation),
                   grant_id, billing (normal, none), state (running, stopped, deleted), created_at,
                   [running_periods: [(from_ms, to_ms or None)]]
    segments       instance_id, from_ms, to_ms (None while open), mode (grant, reserved, ondemand, none), grant_id,
                   [project_id: that of the instance in this stretch]
    events         tenant_id, seq, event_id, type, occurred_at, payload
    usage          source_key, tenant_id, meter, hour_start, quantity_ms, grant_id, instance_id,
                   [mode: slot, grant, reserved, ondemand, when the meter's name does not say it]
    [placements]   instance_id, grant_id, free_before, free_after (in the order they were decided)

Every function returns the violations in words, none when all is well. Grants removed with their account may still be
named by segments, usage and events: such names are not looked into.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from tests.simulation.auditor_usage import (
    Row,
    Rows,
    audit_p5,
    audit_p6,
    audit_usage,
    pieces_of,
    slots_at,
)

__all__ = [
    "audit_all",
    "audit_order",
    "audit_p1",
    "audit_p2",
    "audit_p3",
    "audit_p4",
    "audit_p5",
    "audit_p6",
    "audit_p7",
    "audit_p8",
    "audit_p9",
    "audit_streams",
    "audit_usage",
]

PREFIX = "reservation-grant."


def audit_all(rows: Rows) -> list[str]:
    """Everything that one export can show; P3 compares two."""
    audits = (
        audit_p1,
        audit_p2,
        audit_p4,
        audit_p5,
        audit_p6,
        audit_p7,
        audit_p8,
        audit_p9,
        audit_streams,
        audit_usage,
    )
    return [violation for audit in audits for violation in audit(rows)]


def is_live(grant: Row, now: int) -> bool:
    return grant["cancelled_at"] is None and bool(grant["starts_at"] <= now < grant["ends_at"])


def audit_p1(rows: Rows) -> list[str]:
    """P1: held(g) ≤ slots(g), now and over time; members have the tenant, fit the project, are not billing none."""
    found = []
    for grant in rows["grants"]:
        found += _members_amiss(grant, rows)
        found += _stretches_amiss(grant, rows)
    return found


def _members_amiss(grant: Row, rows: Rows) -> list[str]:
    name = f"P1: {grant['grant_id']}"
    members = [
        each for each in rows["instances"] if each["grant_id"] == grant["grant_id"] and each["state"] != "deleted"
    ]
    found = []
    if len(members) > grant["slots"]:
        found.append(f"{name} holds {len(members)} instances in {grant['slots']} slots")
    if members and rows.get("advanced_at") is not None and not is_live(grant, rows["advanced_at"]):
        found.append(f"{name} is not in term and still has {len(members)} members")
    for member in members:
        member_name = f"member {member['instance_id']}"
        if member["tenant_id"] != grant["tenant_id"]:
            found.append(f"{name}: {member_name} belongs to {member['tenant_id']}")
        if grant["project_id"] is not None and member["project_id"] != grant["project_id"]:
            found.append(f"{name}: {member_name} is of project {member['project_id']}")
        if member["billing"] == "none":
            found.append(f"{name}: {member_name} is billing none")
        if (member["account_id"], member["reservation_id"]) != (grant["account_id"], grant["reservation_id"]):
            found.append(f"{name}: {member_name} is on another reservation")
    return found


def _stretches_amiss(grant: Row, rows: Rows) -> list[str]:
    name = f"P1: {grant['grant_id']}"
    tenants = {instance["instance_id"]: instance["tenant_id"] for instance in rows["instances"]}
    found = []
    stretches = []
    for segment in rows["segments"]:
        if segment["grant_id"] != grant["grant_id"]:
            continue
        from_ms = segment["from_ms"]
        to_ms = max(rows["now"], from_ms + 1) if segment["to_ms"] is None else segment["to_ms"]
        stretches.append((from_ms, to_ms))
        where = f"{segment['instance_id']} in [{from_ms}, {segment['to_ms']})"
        late = segment["to_ms"] is not None and segment["to_ms"] > grant["ends_at"]
        if from_ms < grant["starts_at"] or late or grant["cancelled_at"] is not None:
            found.append(f"{name}: {where} lies outside the term")
        if tenants.get(segment["instance_id"], grant["tenant_id"]) != grant["tenant_id"]:
            found.append(f"{name}: {where} is of another tenant")
        misfit = grant["project_id"] is not None and segment.get("project_id", grant["project_id"])
        if misfit and misfit != grant["project_id"]:
            found.append(f"{name}: {where} is of project {misfit}")
    for instant in {from_ms for from_ms, _ in stretches} | {from_ms for from_ms, _, _ in pieces_of(grant)}:
        inside = sum(1 for from_ms, to_ms in stretches if from_ms <= instant < to_ms)
        if inside > slots_at(grant, instant):
            found.append(f"{name}: {inside} run inside at {instant}, committed are {slots_at(grant, instant)} slots")
    return found


def audit_p2(rows: Rows) -> list[str]:
    """P2, R20: F = T − what runs outside live grants − the slots of live grants."""
    found = []
    for reservation in rows["reservations"]:
        if "free" not in reservation:
            continue
        key = (reservation["account_id"], reservation["reservation_id"])
        live = [
            grant
            for grant in rows["grants"]
            if (grant["account_id"], grant["reservation_id"]) == key and is_live(grant, rows["now"])
        ]
        inside = {grant["grant_id"] for grant in live}
        outside = [
            instance
            for instance in rows["instances"]
            if (instance["account_id"], instance["reservation_id"]) == key
            and instance["state"] == "running"
            and instance["grant_id"] not in inside
        ]
        free = reservation["total"] - reservation["external_in_use"] - len(outside) - sum(g["slots"] for g in live)
        if free != reservation["free"]:
            found.append(f"P2: {key} decides with F = {reservation['free']}, the closed form says {free}")
    return found


def audit_p3(rows: Rows, twin: Rows) -> list[str]:
    """P3: a twin whose boundaries were applied at other moments has equal segments, grants, placements and events."""
    shapes = {
        "segments": ("instance_id", "from_ms", "to_ms", "mode", "grant_id"),
        "grants": ("grant_id", "slots", "starts_at", "ends_at", "cancelled_at", "pieces"),
        "instances": ("instance_id", "state", "grant_id", "reservation_id"),
        "placements": ("instance_id", "grant_id"),
        "events": ("tenant_id", "type", "occurred_at", "payload"),
    }
    found = []
    for kind, keys in shapes.items():
        one, other = (Counter(str([row[key] for key in keys]) for row in side.get(kind, ())) for side in (rows, twin))
        found += [f"P3: only in the first, {kind}: {row}" for row in (one - other)]
        found += [f"P3: only in the twin, {kind}: {row}" for row in (other - one)]
    return found


def events_of(rows: Rows, grant_id: str) -> list[Row]:
    """The grant's own events in the order of its tenant's stream."""
    mine = [event for event in rows["events"] if event["payload"].get("grantId") == grant_id]
    return sorted(mine, key=lambda event: (event["tenant_id"], event["seq"]))


def audit_p4(rows: Rows) -> list[str]:
    """P4, R17, R62: each grant's events are a legal history, at the boundary's instant, with the documented payload."""
    found = []
    for grant in rows["grants"]:
        happened = [
            (event["type"].removeprefix(PREFIX), event["occurred_at"]) for event in events_of(rows, grant["grant_id"])
        ]
        expected = [("created", grant["created_at"])]
        if grant["cancelled_at"] is not None:
            expected.append(("cancelled", grant["cancelled_at"]))
        else:
            expected += [("active", grant["starts_at"]), ("ended", grant["ends_at"])]
        advanced_at = rows.get("advanced_at")
        if advanced_at is not None:
            due = [each for each in expected if each[1] <= advanced_at or each[0] == "created"]
            if happened != due:
                found.append(f"P4: events of {grant['grant_id']} are {happened}, should be {due}")
        elif not happened or happened != expected[: len(happened)]:
            found.append(f"P4: events of {grant['grant_id']} are {happened}, not a beginning of {expected}")
        found += _payloads_amiss(grant, rows)
    return found


def _payloads_amiss(grant: Row, rows: Rows) -> list[str]:
    found = []
    for event in events_of(rows, grant["grant_id"]):
        name = f"P4: {event['type']} of {grant['grant_id']}"
        payload = event["payload"]
        if event["tenant_id"] != grant["tenant_id"]:
            found.append(f"{name} is in the stream of {event['tenant_id']}")
        if payload.get("projectId") != grant["project_id"] or ("projectId" in payload) != bool(grant["project_id"]):
            found.append(f"{name} names project {payload.get('projectId')}")
        unknown = set(payload) - {"grantId", "poolId", "projectId", "slots", "startsAt", "endsAt", "reason"}
        if unknown or not {"grantId", "poolId", "slots", "startsAt", "endsAt"} <= set(payload):
            found.append(f"{name} has the keys {sorted(payload)}")
        final = event["type"].removeprefix(PREFIX) in ("ended", "cancelled")
        told = (payload.get("slots"), payload.get("startsAt"), payload.get("endsAt"))
        if final and told != (grant["slots"], grant["starts_at"], grant["ends_at"]):
            found.append(f"{name} tells {told}")
        if "reason" in payload and not (final and payload["reason"] == "reservation-gone"):
            found.append(f"{name} gives the reason {payload['reason']}")
    return found


def audit_p7(rows: Rows) -> list[str]:
    """P7, R44: segments of an instance never overlap and, where periods are given, cover its running time exactly."""
    found = []
    segments: dict[str, list[Row]] = defaultdict(list)
    for segment in rows["segments"]:
        segments[segment["instance_id"]].append(segment)
        if (segment["mode"] == "grant") != (segment["grant_id"] is not None):
            found.append(f"P7: {segment['instance_id']} is billed {segment['mode']} with grant {segment['grant_id']}")
    endless = 2**62
    for instance in rows["instances"]:
        name = f"P7: {instance['instance_id']}"
        mine = [
            (each["from_ms"], endless if each["to_ms"] is None else each["to_ms"])
            for each in segments[instance["instance_id"]]
        ]
        mine = sorted(stretch for stretch in mine if stretch[0] != stretch[1])
        found += [f"{name} has an inverted segment {stretch}" for stretch in mine if stretch[0] > stretch[1]]
        for (_, earlier_to), (later_from, _) in pairwise(mine):
            if earlier_to > later_from:
                found.append(f"{name} is billed twice from {later_from} on")
        still_open = sum(1 for _, to_ms in mine if to_ms == endless)
        if still_open != (1 if instance["state"] == "running" else 0):
            found.append(f"{name} is {instance['state']} with {still_open} open segments")
        if "running_periods" in instance:
            periods = [(from_ms, endless if to_ms is None else to_ms) for from_ms, to_ms in instance["running_periods"]]
            if _joined(mine) != _joined(periods):
                found.append(f"{name} ran in {periods}, billed is {mine}")
    return found


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted stretches with touching neighbours melted into one."""
    joined: list[tuple[int, int]] = []
    for from_ms, to_ms in sorted(stretches):
        if joined and joined[-1][1] == from_ms:
            joined[-1] = (joined[-1][0], to_ms)
        else:
            joined.append((from_ms, to_ms))
    return joined


def audit_p8(rows: Rows) -> list[str]:
    """P8: an ordinary placement needs F ≥ 1 and lowers F by one; one inside a grant leaves F as it was."""
    found = []
    for placement in rows.get("placements", ()):
        before, after = placement["free_before"], placement["free_after"]
        if placement["grant_id"] is not None:
            if before != after:
                found.append(f"P8: {placement['instance_id']} went into a grant and F went from {before} to {after}")
        elif before < 1 or after != before - 1:
            found.append(f"P8: {placement['instance_id']} took an ordinary slot and F went from {before} to {after}")
    return found


def audit_p9(rows: Rows) -> list[str]:
    """P9: at every instant the granted slots are at most the total against which the newest of them was checked."""
    found = []
    by_reservation: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for grant in rows["grants"]:
        if grant["cancelled_at"] is None and "admissions" in grant:
            by_reservation[(grant["account_id"], grant["reservation_id"])].append(grant)
    for key, grants in by_reservation.items():
        instants = {from_ms for grant in grants for from_ms, _, _ in pieces_of(grant)}
        instants |= {admission["from_ms"] for grant in grants for admission in grant["admissions"]}
        for instant in sorted(instants):
            covering = [grant for grant in grants if slots_at(grant, instant) > 0]
            checks = [each for grant in covering for each in grant["admissions"] if each["from_ms"] <= instant]
            granted = sum(slots_at(grant, instant) for grant in covering)
            total = max(checks, key=lambda each: each["order"])["total"] if checks else granted
            if granted > total:
                found.append(
                    f"P9: {key} has {granted} slots granted at {instant}, the newest was checked against {total}"
                )
    return found


def audit_order(rows: Rows) -> list[str]:
    """T89: at one instant a tenant hears of the ends of terms before the starts of others, on whatever reservations.

    Of grants whose term nobody cut: an end that is asked for can fall into a millisecond whose starts are told already.
    Apart from `audit_all`, for the naive model notices boundaries one reservation after the other.
    """
    asked = {
        event["payload"]["grantId"]: event["payload"]["endsAt"]
        for event in rows["events"]
        if event["type"] == f"{PREFIX}created"
    }
    found = []
    started: dict[tuple[str, int], str] = {}
    for event in sorted(rows["events"], key=lambda event: (event["tenant_id"], event["seq"])):
        where, grant_id = (event["tenant_id"], event["occurred_at"]), event["payload"].get("grantId")
        if event["type"] == f"{PREFIX}active":
            started.setdefault(where, grant_id)
        elif event["type"] == f"{PREFIX}ended" and asked.get(grant_id) == event["occurred_at"] and where in started:
            found.append(f"events: the end of {grant_id} is told after the start of {started[where]} at {where[1]}")
    return found


def audit_streams(rows: Rows) -> list[str]:
    """R17, R63: each tenant's seq is gap-free from 1, event ids are unique, each grant has each type at most once."""
    streams: dict[str, list[int]] = defaultdict(list)
    for event in rows["events"]:
        streams[event["tenant_id"]].append(event["seq"])
    found = [
        f"events: the stream of {tenant_id} counts {sorted(numbers)}"
        for tenant_id, numbers in streams.items()
        if sorted(numbers) != list(range(1, len(numbers) + 1))
    ]
    ids = Counter(event["event_id"] for event in rows["events"])
    found += [f"events: id {event_id} is used {times} times" for event_id, times in ids.items() if times > 1]
    types = Counter(
        (event["payload"]["grantId"], event["type"]) for event in rows["events"] if "grantId" in event["payload"]
    )
    found += [f"events: {grant_id} has {times} of {kind}" for (grant_id, kind), times in types.items() if times > 1]
    for event in rows["events"]:
        if event["type"] == f"{PREFIX}capacity-short":
            payload = event["payload"]
            if payload["grantedSlots"] <= payload["total"] or not payload["grantIds"]:
                found.append(f"events: {event['event_id']} reports a shortage that is none: {payload}")
        if event["occurred_at"] > rows["now"]:
            found.append(f"events: {event['event_id']} lies in the future")
    return found
