"""Ten thousand terms that end at one instant, while everything goes on."""

from __future__ import annotations

from typing import Final

from storage.database import Connection, connect
from tests.capacity_world import eventually
from tests.chaos.many import make_grants
from tests.chaos.scene import Scene
from tests.faults.load import now_ms

AHEAD_MS: Final = 4_000
MAKING_MS: Final = 1
"""Allowed for making one, so that all are made before they end."""
TOLD_WITHIN_MS: Final = 120_000

ENDED: Final = """
select count(*) as events, count(distinct payload ->> 'grantId') as grants, max(recorded_at) as last_at from event
where tenant_id <> '*' and type = 'reservation-grant.ended' and occurred_at = $1
"""


async def end_many_at_once(scene: Scene) -> None:
    """All are applied and told of, each once, and whoever asks meanwhile is answered."""
    count = scene.size(short=1_000, long=10_000)
    ends_at = now_ms() + AHEAD_MS + count * MAKING_MS
    made = await make_grants(scene, count, starts_at=ends_at - 1_000, ends_at=ends_at)
    scene.say(f"{len(made):,} grants end at one instant, in {(ends_at - now_ms()) / 1_000:.1f} s")
    connection = await connect(scene.stage.url)
    try:
        async with scene.loaded():
            await scene.compare_latency("about that instant", lambda: _see_them_end(scene, connection, ends_at, count))
    finally:
        await connection.close()


async def _see_them_end(scene: Scene, connection: Connection, ends_at: int, count: int) -> None:
    async def are_told() -> bool:
        row = await connection.fetchrow(ENDED, ends_at)
        assert row is not None
        return bool(row["grants"] >= count)

    await eventually(are_told, timeout_ms=max(0, ends_at - now_ms()) + TOLD_WITHIN_MS)
    row = await connection.fetchrow(ENDED, ends_at)
    assert row is not None
    assert (row["events"], row["grants"]) == (count, count)
    scene.say(f"the last of {count:,} ends was told of {row['last_at'] - ends_at:,} ms after it")
