"""API keys whose time is over, for the job that tells of it."""

from __future__ import annotations

from typing import Final

from domain.tenancy import ApiKey
from storage.database import AnyConnection
from storage.identity import api_key_of

_CLAIM: Final = """
update api_key k set expiry_told = true
where k.key_id in (
    select a.key_id from api_key a
    where a.expires_at <= $1 and a.expires_at is not null and not a.expiry_told
    order by a.expires_at limit $2 for no key update skip locked
)
returning k.*
"""


async def claim_expired_keys(connection: AnyConnection, *, now: int, limit: int) -> list[ApiKey]:
    """Keys that have expired and of which nobody has told: the caller does, in this transaction. Revoked ones are among
    them, to be passed over."""
    return [api_key_of(dict(row)) for row in await connection.fetch(_CLAIM, now, limit)]
