"""Claims of jobs that only one node may run at a time (`job_run`), one row a claim.

`last_run_at` is when the job was last begun; while somebody runs it, it lies ahead, at the end of the claim. So the row
tells both: whether the job is due, and whether it is running. A node that dies leaves a claim that runs out by itself.
"""

from __future__ import annotations

from typing import Final

from storage.database import AnyConnection, affected

_CLAIM: Final = """
insert into job_run as j (name, last_run_at) values ($1, $2::bigint + $4::bigint)
on conflict (name) do update set last_run_at = excluded.last_run_at where j.last_run_at <= $2::bigint - $3::bigint
returning last_run_at
"""


async def claim_run(connection: AnyConnection, name: str, *, now: int, every_ms: int, lease_ms: int) -> int | None:
    """Claim a run that is due, for at most `lease_ms`. The claim, or None: it is running, or not due yet."""
    claim: int | None = await connection.fetchval(_CLAIM, name, now, every_ms, lease_ms)
    return claim


_MOVE: Final = "update job_run set last_run_at = $3 where name = $1 and last_run_at = $2"


async def prolong_run(connection: AnyConnection, name: str, claim: int, *, now: int, lease_ms: int) -> int | None:
    """The claim with its time begun anew; None when it has run out, whether or not somebody else has it by now."""
    if now >= claim:
        return None
    prolonged = max(claim, now + lease_ms)
    return prolonged if affected(await connection.execute(_MOVE, name, claim, prolonged)) else None


async def finish_run(connection: AnyConnection, name: str, claim: int, *, began_at: int) -> None:
    """Give the claim back. One that has run out is somebody else's and stays."""
    await connection.execute(_MOVE, name, claim, began_at)
