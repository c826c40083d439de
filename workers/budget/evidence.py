"""Evidence of what was decided: an envelope whose id is the hash of its content, signed (section 9).

It comes after the decision and never stands in its way: what cannot be put into canonical JSON, or cannot be kept for
the moment, has no evidence. A repetition has the first one's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from domain.replay import RequestKey
from domain.terms import DAY_MS, HOUR_MS, MINUTE_MS
from storage.budget.books import read_owners
from storage.budget.evidence import (
    KeptEvidence,
    SigningKey,
    evidence_of_reservations,
    find_evidence,
    flush_evidence,
    flush_key_used,
    get_envelope,
    get_keys,
)
from storage.database import Database
from workers.clock import Clock

log = logging.getLogger("earmark.evidence")

SCHEMA: Final = "cycles-evidence/v0.1"
SEED_LENGTH: Final = 32
"""Bytes of a signing key."""
MARK_EVERY_MS: Final = 10 * MINUTE_MS
"""How often a node writes down that it signs with its key: within `VALID_AFTER_USE_MS`, or signatures would outlive it."""
VALID_AFTER_USE_MS: Final = HOUR_MS
RETIRED_AFTER_MS: Final = DAY_MS
"""A key that no node has signed with for so long is retired: valid until a while after its last use."""


class Artifact(StrEnum):
    """What an envelope attests."""

    DECIDE = "decide"
    RESERVE = "reserve"
    COMMIT = "commit"
    RELEASE = "release"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is to be attested. `key`: where the answer is remembered, for what was accepted; `is_repeat`: told again."""

    artifact: Artifact
    tenant_id: str
    trace_id: str
    payload: Mapping[str, Any]
    reservation_id: str | None = None
    key: RequestKey | None = None
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Envelope:
    evidence_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedKey:
    """`until_at` None: it is in use."""

    kid: str
    public_key: bytes
    from_at: int
    until_at: int | None


class Signer:
    """An Ed25519 key. `seed`: its private half, 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._key.public_key().public_bytes_raw()
        self.did = self.public_key.hex()
        self.kid = sha256(self.public_key).hexdigest()[:16]

    def sign(self, text: str) -> str:
        return self._key.sign(text.encode()).hex()


def derive_seed(secret: bytes) -> bytes:
    """A signing key of a node's secret: every node with the same secret has the same."""
    return HKDF(algorithm=SHA256(), length=SEED_LENGTH, salt=None, info=b"earmark evidence signing key").derive(secret)


def seal(
    signer: Signer, *, artifact: str, server_id: str, issued_at: int, trace_id: str, payload: Mapping[str, Any]
) -> Envelope:
    """The canonical envelope, its id over it with neither id nor signature, its signature over it with its id.

    Raises `rfc8785.CanonicalizationError` for what canonical JSON cannot carry, integers beyond 2^53 among it.
    """
    inner = rfc8785.dumps({artifact: payload}).decode()

    def written(evidence_id: str, signature: str) -> str:
        # In the order of the names, as the canonical form has it; only the payload can hold anything unforeseen.
        return (
            f'{{"artifact_type":"{artifact}","evidence_id":"{evidence_id}","issued_at_ms":{issued_at},"payload":{inner},'
            f'"schema_version":"{SCHEMA}","server_id":{json.dumps(server_id, ensure_ascii=False)},'
            f'"signature":"{signature}","signer_did":"{signer.did}","trace_id":"{trace_id}"}}'
        )

    evidence_id = sha256(written("", "").encode()).hexdigest()
    return Envelope(evidence_id, written(evidence_id, signer.sign(written(evidence_id, ""))))


class Attester:
    """One object a node that gives evidence. `server_id`: the public address of the wire, `/v1` included."""

    def __init__(self, database: Database, clock: Clock, signer: Signer, *, server_id: str) -> None:
        self.server_id = server_id
        self._database = database
        self._clock = clock
        self._signer = signer
        self._marked_at: int | None = None

    def url_of(self, evidence_id: str) -> str:
        return f"{self.server_id}/evidence/{evidence_id}"

    async def attest(self, statement: Statement) -> str | None:
        """The id of the evidence, which is kept when this returns; None when there is none. Raises nothing."""
        try:
            return await self._attest(statement)
        except rfc8785.CanonicalizationError as error:
            log.warning("no evidence: %s", error, extra={"artifact": statement.artifact})
        except Exception:  # the decision is made and must be told
            log.exception("evidence could not be kept", extra={"artifact": statement.artifact})
        return None

    async def _attest(self, statement: Statement) -> str | None:
        if statement.is_repeat and statement.key is not None:
            async with self._database.acquire() as connection:
                found = await find_evidence(connection, statement.key)
            if found is not None:
                return found
        issued_at = self._clock.local_ms()
        envelope = seal(
            self._signer,
            artifact=statement.artifact,
            server_id=self.server_id,
            issued_at=issued_at,
            trace_id=statement.trace_id,
            payload=statement.payload,
        )
        kept = KeptEvidence(
            tenant_id=statement.tenant_id,
            evidence_id=envelope.evidence_id,
            artifact=statement.artifact,
            reservation_id=statement.reservation_id,
            envelope=envelope.text,
            issued_at=issued_at,
        )
        await self._mark(issued_at)
        async with self._database.transaction() as connection:
            return await flush_evidence(connection, kept, statement.key)

    async def _mark(self, now: int) -> None:
        """Write down that this key is in use, before anything that it signs is out."""
        if self._marked_at is not None and self._marked_at <= now < self._marked_at + MARK_EVERY_MS:
            return
        # Clocks of nodes differ a little; nobody else has had this key before.
        key = SigningKey(kid=self._signer.kid, public_key=self._signer.public_key, from_at=now - MINUTE_MS, used_at=now)
        async with self._database.acquire() as connection:
            await flush_key_used(connection, key)
        self._marked_at = now

    async def owner_of(self, reservation_id: str) -> str | None:
        """Whose a budget reservation is, for an operator who names only that."""
        async with self._database.acquire() as connection:
            return (await read_owners(connection, [reservation_id])).get(reservation_id)

    async def of_reservations(self, tenant_id: str, reservation_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """Reservation to artifact to evidence."""
        async with self._database.acquire() as connection:
            return await evidence_of_reservations(connection, tenant_id, reservation_ids)


class EvidenceReads:
    """What anybody may fetch, whether this node gives evidence or not."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def envelope(self, evidence_id: str) -> str | None:
        """As it was signed."""
        async with self._database.acquire() as connection:
            return await get_envelope(connection, evidence_id)

    async def keys(self) -> list[PublishedKey]:
        """Every key that ever signed, with the time that its signatures are good for."""
        async with self._database.acquire() as connection:
            keys = await get_keys(connection)
        retired_before = self._clock.local_ms() - RETIRED_AFTER_MS
        return [
            PublishedKey(
                kid=key.kid,
                public_key=key.public_key,
                from_at=key.from_at,
                until_at=key.used_at + VALID_AFTER_USE_MS if key.used_at < retired_before else None,
            )
            for key in keys
        ]
