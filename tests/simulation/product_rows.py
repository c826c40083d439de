"""The product's tables, exported in the row shapes that `auditor` documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from domain.capacity.boundaries import AMENDED, TYPES
from domain.events import MIRROR
from domain.identity import split_reservation_key
from storage.capacity.books import read_heads, read_states
from storage.database import Connection

Row = dict[str, Any]


async def export_rows(
    connection: Connection, *, now: int, advanced: bool = True, metered: bool = False
) -> dict[str, Any]:
    """Everything at `now`, in one snapshot.

    `advanced`: every boundary up to `now` has been applied and its event relayed; `metered`: a pass of the meter at
    `now` was the last thing that happened. The product's own `amended` events, which the rules do not know, and those of
    tenants, which are not about capacity, are left out after the numbers of their streams were found to be without gaps.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return {
            "now": now,
            "advanced_at": now if advanced else None,
            "metered_at": now if metered else None,
            "reservations": await _reservations(connection),
            "grants": await _grants(connection),
            "instances": await _instances(connection),
            "segments": await _segments(connection),
            "events": _known_to_the_rules(await read_streams(connection)),
            "usage": [dict(row) for row in await connection.fetch("select * from usage_record order by source_key")],
        }


_TABLES = "select tablename from pg_tables where schemaname = 'public' and tablename <> 'job_run' order by tablename"


async def dump(connection: Connection) -> dict[str, list[Any]]:
    """Every row of every table as it is, but for when jobs last ran."""
    tables = [row["tablename"] for row in await connection.fetch(_TABLES)]
    return {table: await connection.fetch(f"select t::text from {table} t order by 1") for table in tables}


async def _reservations(connection: Connection) -> list[Row]:
    """With the F that the product decides with (R19), counted by its own books."""
    keys = [row["key"] for row in await connection.fetch("select key from capacity_reservation order by key")]
    states = await read_states(connection, await read_heads(connection, keys))
    return [
        {
            "account_id": state.reservation.account_id,
            "reservation_id": state.reservation.reservation_id,
            "total": state.reservation.total,
            "external_in_use": state.reservation.external_in_use,
            "free": state.free,
        }
        for state in states.values()
    ]


async def _grants(connection: Connection) -> list[Row]:
    grants = []
    for row in await connection.fetch("select * from capacity_grant order by created_at, grant_id"):
        account_id, reservation_id = split_reservation_key(row["key"])
        pieces = row["commitments"] or [(row["starts_at"], row["slots"])]
        grants.append(
            {
                **dict(row),
                "account_id": account_id,
                "reservation_id": reservation_id,
                "pieces": [(from_at, slots) for from_at, slots in pieces],
            }
        )
    return grants


async def _instances(connection: Connection) -> list[Row]:
    instances = []
    for row in await connection.fetch(
        "select * from capacity_instance where moved_to is null order by created_at, instance_id"
    ):
        is_on_it = row["attached"] and row["run_state"] != "deleted"
        account_id, reservation_id = split_reservation_key(row["key"]) if is_on_it else (None, None)
        place = {"account_id": account_id, "reservation_id": reservation_id, "state": row["run_state"]}
        instances.append({**dict(row), **place})
    return instances


async def _segments(connection: Connection) -> list[Row]:
    """Empty stretches are rows too, in the product: a grant that starts and ends in one millisecond leaves one."""
    sql = "select * from capacity_segment where to_at is null or to_at > from_at order by key, instance_id, number"
    return [{**dict(row), "from_ms": row["from_at"], "to_ms": row["to_at"]} for row in await connection.fetch(sql)]


FOR_OPERATORS = ("api_key.", "system.", "tenant.created")


async def read_streams(connection: Connection) -> dict[str, list[Row]]:
    """Every tenant's stream in order, found gapless and the same as its part of the mirror.

    Gapless means: numbered from 1 to the head's `last_seq`. The mirror holds each event once, within one tenant in
    that tenant's order (R63), and beside them just what operators are told, whoever else is.
    """
    streams: dict[str, list[Row]] = defaultdict(list)
    for row in await connection.fetch("select * from event order by tenant_id, seq"):
        streams[row["tenant_id"]].append(dict(row))
    heads = {row["tenant_id"]: row["last_seq"] for row in await connection.fetch("select * from event_stream")}
    for stream, last_seq in heads.items():
        numbers = [event["seq"] for event in streams[stream]]
        assert numbers == list(range(1, last_seq + 1)), (stream, numbers)
    mirrored: dict[str, list[str]] = defaultdict(list)
    for event in streams.pop(MIRROR, []):
        if event["type"].startswith(FOR_OPERATORS):
            continue
        mirrored[event["subject"]].append(event["event_id"])
    told = {
        stream: [event["event_id"] for event in events if not event["type"].startswith(FOR_OPERATORS)]
        for stream, events in streams.items()
    }
    assert told == dict(mirrored), "the mirror differs from the streams that it repeats"
    return dict(streams)


def _known_to_the_rules(streams: dict[str, list[Row]]) -> list[Row]:
    """Numbered anew, in order, since the auditor looks for gaps too."""
    kept = []
    for events in streams.values():
        others: Sequence[Row] = [event for event in events if event["type"] in TYPES and event["type"] != AMENDED]
        kept += [{**event, "seq": number} for number, event in enumerate(others, start=1)]
    return kept
