"""Evidence (`budget_evidence`, `budget_evidence_of`, `evidence_key`): envelopes, and what they belong to.

Written by the attester only; retention removes what is old. What ties one to a remembered answer goes with that answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from domain.replay import RequestKey
from storage.database import AnyConnection, affected


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvidence:
    tenant_id: str
    evidence_id: str
    artifact: str
    reservation_id: str | None
    envelope: str
    issued_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The public half of a key, when it first signed, and when about it last did."""

    kid: str
    public_key: bytes
    from_at: int
    used_at: int


_ADD: Final = """
insert into budget_evidence (tenant_id, evidence_id, artifact, reservation_id, envelope, issued_at)
values ($1, $2, $3, $4, $5, $6) on conflict (tenant_id, evidence_id) do nothing
"""
_TIE: Final = """
insert into budget_evidence_of (tenant_id, operation, idempotency_key, evidence_id)
select a.tenant_id, a.operation, a.idempotency_key, $4 from budget_answer a
where a.tenant_id = $1 and a.operation = $2 and a.idempotency_key = $3
on conflict (tenant_id, operation, idempotency_key) do nothing
"""
_DROP: Final = "delete from budget_evidence where tenant_id = $1 and evidence_id = $2"
_TIED: Final = """
select evidence_id from budget_evidence_of where tenant_id = $1 and operation = $2 and idempotency_key = $3
"""


async def flush_evidence(connection: AnyConnection, kept: KeptEvidence, key: RequestKey | None) -> str:
    """Keep it, tied to the answer that is remembered under `key`. The caller is inside a transaction.

    Where that answer has evidence already, this one is dropped and the other's id returned.
    """
    given = (kept.tenant_id, kept.evidence_id, kept.artifact, kept.reservation_id, kept.envelope, kept.issued_at)
    await connection.execute(_ADD, *given)
    if key is None:
        return kept.evidence_id
    await connection.execute(_TIE, key.owner, key.operation, key.idempotency_key, kept.evidence_id)
    tied = await find_evidence(connection, key)
    if tied is not None and tied != kept.evidence_id:
        await connection.execute(_DROP, kept.tenant_id, kept.evidence_id)
        return tied
    return kept.evidence_id


async def find_evidence(connection: AnyConnection, key: RequestKey) -> str | None:
    """What belongs to a remembered answer."""
    found: str | None = await connection.fetchval(_TIED, key.owner, key.operation, key.idempotency_key)
    return found


_ENVELOPE: Final = "select envelope from budget_evidence where evidence_id = $1 limit 1"
_OF_RESERVATIONS: Final = """
select reservation_id, artifact, evidence_id from budget_evidence
where tenant_id = $1 and reservation_id = any ($2) and artifact <> 'error' order by issued_at desc, evidence_id
"""


async def get_envelope(connection: AnyConnection, evidence_id: str) -> str | None:
    found: str | None = await connection.fetchval(_ENVELOPE, evidence_id)
    return found


async def evidence_of_reservations(
    connection: AnyConnection, tenant_id: str, reservation_ids: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Reservation to artifact to evidence; of two, the first."""
    found: dict[str, dict[str, str]] = {}
    for row in await connection.fetch(_OF_RESERVATIONS, tenant_id, list(reservation_ids)):
        found.setdefault(row["reservation_id"], {})[row["artifact"]] = row["evidence_id"]
    return found


_EXPIRE: Final = """
delete from budget_evidence where (tenant_id, evidence_id) in (
    select e.tenant_id, e.evidence_id from budget_evidence e
    where e.issued_at < $1 and not exists (
        select 1 from budget_evidence_of o where o.tenant_id = e.tenant_id and o.evidence_id = e.evidence_id
    )
    order by e.issued_at limit $2
)
"""


async def expire_evidence(connection: AnyConnection, *, before: int, limit: int) -> int:
    """Remove up to `limit` envelopes from before an instant, but none that a remembered answer refers to. How many."""
    return affected(await connection.execute(_EXPIRE, before, limit))


_MARK: Final = """
insert into evidence_key (kid, public_key, from_at, used_at) values ($1, $2, $3, $4)
on conflict (kid) do update set used_at = greatest(evidence_key.used_at, excluded.used_at)
"""


async def flush_key_used(connection: AnyConnection, key: SigningKey) -> None:
    """That it signs about now; its beginning stays what it was."""
    await connection.execute(_MARK, key.kid, key.public_key, key.from_at, key.used_at)


async def get_keys(connection: AnyConnection) -> list[SigningKey]:
    rows = await connection.fetch("select kid, public_key, from_at, used_at from evidence_key order by from_at, kid")
    return [SigningKey(**dict(row)) for row in rows]
