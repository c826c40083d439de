"""The auditor's look at usage records, and the arithmetic it shares with `auditor`, where the rows are documented."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

HOUR_MS = 3_600_000

Row = Mapping[str, Any]
Rows = Mapping[str, Any]


def mode_of(usage: Row) -> str | None:
    """slot, grant, reserved, ondemand; None for meters that the rules do not bind (disk, traffic, licences)."""
    if "mode" in usage:
        return str(usage["mode"])
    meter = str(usage["meter"])
    if meter in ("vm.grant.slot.hours", "vm.grant.usage.hours"):
        return "slot" if meter == "vm.grant.slot.hours" else "grant"
    for prefix, mode in (("vm.reserved.", "reserved"), ("vm.ondemand.", "ondemand")):
        if meter.startswith(prefix):
            return mode
    return None


def pieces_of(grant: Row) -> list[tuple[int, int, int]]:
    """(from, to, slots) of the term; nothing for a cancelled grant."""
    if grant["cancelled_at"] is not None:
        return []
    steps = sorted((int(from_ms), int(slots)) for from_ms, slots in grant["pieces"])
    ends = [from_ms for from_ms, _ in steps[1:]] + [grant["ends_at"]]
    stretches = []
    for (from_ms, slots), to_ms in zip(steps, ends, strict=True):
        stretch = (max(from_ms, grant["starts_at"]), min(to_ms, grant["ends_at"]), slots)
        if stretch[0] < stretch[1]:
            stretches.append(stretch)
    return stretches


def slots_at(grant: Row, instant: int) -> int:
    return sum(slots for from_ms, to_ms, slots in pieces_of(grant) if from_ms <= instant < to_ms)


def hour_shares(from_ms: int, to_ms: int) -> Iterator[tuple[int, int]]:
    """(hour start, milliseconds) of every UTC hour that [from_ms, to_ms) touches."""
    while from_ms < to_ms:
        hour = from_ms - from_ms % HOUR_MS
        until = min(to_ms, hour + HOUR_MS)
        yield hour, until - from_ms
        from_ms = until


def committed_by_hour(grant: Row) -> dict[int, int]:
    hours: dict[int, int] = defaultdict(int)
    for from_ms, to_ms, slots in pieces_of(grant):
        for hour, share in hour_shares(from_ms, to_ms):
            hours[hour] += slots * share
    return dict(hours)


def metered_end(rows: Rows) -> int | None:
    """The end of the last hour that the last pass could write, None when no pass was the last thing."""
    metered_at = rows.get("metered_at")
    return None if metered_at is None else int(metered_at) - int(metered_at) % HOUR_MS


def audit_p5(rows: Rows) -> list[str]:
    """P5, R38-R42: one record for each committed hour that is over, of exactly slots × time, to the grantee."""
    found = []
    grants = {grant["grant_id"]: grant for grant in rows["grants"]}
    records: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for usage in rows["usage"]:
        if mode_of(usage) == "slot":
            records[(usage["grant_id"], usage["hour_start"])].append(usage)
    for (grant_id, hour), written in sorted(records.items()):
        name = f"P5: slot hours of {grant_id} in hour {hour}"
        if len(written) > 1:
            found.append(f"{name} are written {len(written)} times")
        if hour % HOUR_MS or hour + HOUR_MS > rows["now"]:
            found.append(f"{name} are written although that is no hour that is over at {rows['now']}")
        grant = grants.get(grant_id)
        if grant is None:  # removed with its account
            continue
        committed = committed_by_hour(grant).get(hour, 0)
        quantity = sum(usage["quantity_ms"] for usage in written)
        if quantity != committed:
            found.append(f"{name} are {quantity} slot-ms, committed were {committed}")
        found += [
            f"{name} belong to {each['tenant_id']}" for each in written if each["tenant_id"] != grant["tenant_id"]
        ]
    until = metered_end(rows)
    for grant in grants.values() if until is not None else ():
        for hour, committed in committed_by_hour(grant).items():
            if until is not None and hour + HOUR_MS <= until and (grant["grant_id"], hour) not in records:
                found.append(f"P5: {committed} slot-ms of {grant['grant_id']} in hour {hour} were never written")
    return found


def audit_p6(rows: Rows) -> list[str]:
    """P6, R43: in each hour the use inside a grant is at most what the grant commits; by segments and by records."""
    found = []
    used: dict[tuple[str, int], int] = defaultdict(int)
    for segment in rows["segments"]:
        if segment["mode"] == "grant":
            to_ms = rows["now"] if segment["to_ms"] is None else segment["to_ms"]
            for hour, share in hour_shares(segment["from_ms"], to_ms):
                used[(segment["grant_id"], hour)] += share
    recorded: dict[tuple[str, int], int] = defaultdict(int)
    for usage in rows["usage"]:
        if mode_of(usage) == "grant":
            recorded[(usage["grant_id"], usage["hour_start"])] += usage["quantity_ms"]
    for grant in rows["grants"]:
        committed = committed_by_hour(grant)
        for source, amounts in (("segments", used), ("records", recorded)):
            for (grant_id, hour), amount in amounts.items():
                if grant_id == grant["grant_id"] and amount > committed.get(hour, 0):
                    text = f"{amount} instance-ms of {grant_id} in hour {hour} by {source}"
                    found.append(f"P6: {text}, committed were {committed.get(hour, 0)} slot-ms")
    return found


def audit_usage(rows: Rows) -> list[str]:
    """R41, R44-R46: source keys are unique; after a pass each hour's records equal that hour's segments."""
    keys = Counter(usage["source_key"] for usage in rows["usage"])
    found = [f"usage: source key {key} is used {times} times" for key, times in keys.items() if times > 1]
    owners = {instance["instance_id"]: instance["tenant_id"] for instance in rows["instances"]}
    difference: dict[tuple[str, str, str | None, int], int] = defaultdict(int)
    until = metered_end(rows)
    for usage in rows["usage"]:
        mode = mode_of(usage)
        if mode in (None, "slot"):
            continue
        grant_id = usage["grant_id"] if mode == "grant" else None
        difference[(usage["instance_id"], str(mode), grant_id, usage["hour_start"])] += usage["quantity_ms"]
        owner = owners.get(usage["instance_id"], usage["tenant_id"])
        if owner != usage["tenant_id"]:
            found.append(f"usage: {usage['source_key']} is billed to {usage['tenant_id']}, the owner is {owner}")
        if usage["hour_start"] + HOUR_MS > rows["now"]:
            found.append(f"usage: {usage['source_key']} is written before its hour is over")
    if until is None:
        return found
    for segment in rows["segments"]:
        if segment["mode"] != "none":
            to_ms = until if segment["to_ms"] is None else min(segment["to_ms"], until)
            for hour, share in hour_shares(segment["from_ms"], to_ms):
                difference[(segment["instance_id"], segment["mode"], segment["grant_id"], hour)] -= share
    for (instance_id, mode, grant_id, hour), amount in difference.items():
        if amount != 0:
            where = f"{instance_id} as {mode} {grant_id or ''} in hour {hour}"
            found.append(f"usage: records of {where} differ from its segments by {amount} ms")
    return found
