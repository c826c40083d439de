"""What an operator lets webhooks do (`webhook_security`): one row, or none, and then the defaults of the node hold."""

from __future__ import annotations

from typing import Final

from domain.webhooks.targets import Security
from storage.database import AnyConnection

_READ: Final = "select * from webhook_security where name = 'current'"


async def read_security(connection: AnyConnection) -> Security | None:
    row = await connection.fetchrow(_READ)
    if row is None:
        return None
    return Security(
        blocked_cidr_ranges=tuple(row["blocked_cidr_ranges"]),
        allowed_url_patterns=tuple(row["allowed_url_patterns"]),
        allow_http=row["allow_http"],
    )


_WRITE: Final = """
insert into webhook_security (name, blocked_cidr_ranges, allowed_url_patterns, allow_http, updated_at)
values ('current', $1, $2, $3, $4)
on conflict (name) do update set blocked_cidr_ranges = excluded.blocked_cidr_ranges,
    allowed_url_patterns = excluded.allowed_url_patterns, allow_http = excluded.allow_http,
    updated_at = excluded.updated_at
"""


async def flush_security(connection: AnyConnection, security: Security, *, now: int) -> None:
    await connection.execute(
        _WRITE, list(security.blocked_cidr_ranges), list(security.allowed_url_patterns), security.allow_http, now
    )
