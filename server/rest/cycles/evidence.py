"""Evidence on this wire (section 9): what an operation attests, and what anybody may fetch to check it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from domain.budget.commands import Commit, Evaluate, Release, Reserve
from domain.outcomes import InvalidInput, NotFound
from domain.replay import RequestKey
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.failures import ErrorCode, Failure, public_limit
from workers.budget.evidence import Artifact, Attester, PublishedKey, Statement

ATTESTED: Final = frozenset(
    {
        ErrorCode.BUDGET_EXCEEDED,
        ErrorCode.BUDGET_FROZEN,
        ErrorCode.BUDGET_CLOSED,
        ErrorCode.OVERDRAFT_LIMIT_EXCEEDED,
        ErrorCode.DEBT_OUTSTANDING,
        ErrorCode.UNIT_MISMATCH,
        ErrorCode.RESERVATION_FINALIZED,
        ErrorCode.RESERVATION_EXPIRED,
        ErrorCode.TENANT_CLOSED,
    }
)
"""Errors that are decisions. Before anything is decided there is nothing to attest."""
OPERATIONS: Final = {
    Artifact.DECIDE: Evaluate.operation,
    Artifact.RESERVE: Reserve.operation,
    Artifact.COMMIT: Commit.operation,
    Artifact.RELEASE: Release.operation,
}
ENDPOINTS: Final = {
    Artifact.DECIDE: "POST /v1/decide",
    Artifact.RESERVE: "POST /v1/reservations",
    Artifact.COMMIT: "POST /v1/reservations/{reservation_id}/commit",
    Artifact.RELEASE: "POST /v1/reservations/{reservation_id}/release",
}
REFERENCE: Final = "cycles_evidence"
UNATTESTED: Final = ("remaining_ttl_ms", REFERENCE)
"""Of an answer: how it is told, not what was decided."""
IMMUTABLE: Final = (("cache-control", "public, immutable"),)
BRIEFLY: Final = (("cache-control", "public, max-age=300"),)

_EVIDENCE_ID: Final = re.compile(r"[0-9a-f]{64}")
_FREE: Final = frozenset({"metadata", "custom", "dimensions"})


# -- giving ------------------------------------------------------------------------------------------------------------


async def attest_reply(attester: Attester, exchange: Exchange, artifact: Artifact, reply: Reply) -> None:
    """Put the reference on an answer that was accepted, now or before."""
    if (tenant_id := await _owner(attester, exchange)) is None:
        return
    response = {name: value for name, value in msgspec.to_builtins(reply.value).items() if name not in UNATTESTED}
    named = _named(exchange)
    operation = OPERATIONS[artifact] + (f"/{named}" if named else "")
    evidence_id = await attester.attest(
        Statement(
            artifact=artifact,
            tenant_id=tenant_id,
            trace_id=exchange.correlation.trace_id,
            payload={**_where(named), "request": _mirror(exchange), "response": response},
            reservation_id=named or response.get("reservation_id"),
            key=RequestKey(tenant_id, operation, exchange.idempotency_key),
            is_repeat=reply.is_repeat,
        )
    )
    if evidence_id is not None:
        reply.value[REFERENCE] = show_reference(attester, evidence_id)


async def attest_error(
    attester: Attester, exchange: Exchange, artifact: Artifact, status: int, error: Document
) -> None:
    """Put the reference on an error that is a decision."""
    if (tenant_id := await _owner(attester, exchange)) is None:
        return
    named = _named(exchange)
    payload = {
        "endpoint": ENDPOINTS[artifact],
        "http_status": status,
        **_where(named),
        "request": _mirror(exchange),
        "response": msgspec.to_builtins(error),
    }
    evidence_id = await attester.attest(
        Statement(
            artifact=Artifact.ERROR,
            tenant_id=tenant_id,
            trace_id=exchange.correlation.trace_id,
            payload=payload,
            reservation_id=named,
        )
    )
    if evidence_id is not None:
        error[REFERENCE] = show_reference(attester, evidence_id)


async def evidence_of(exchange: Exchange, tenant_id: str, reservation_ids: Iterable[str]) -> dict[str, Document]:
    """Reservation to its references; of those that have any. Nothing where no evidence is given."""
    attester = exchange.runtime.attester
    if attester is None:
        return {}
    found = await attester.of_reservations(tenant_id, reservation_ids)
    return {
        reservation_id: {artifact: show_reference(attester, each) for artifact, each in given.items()}
        for reservation_id, given in found.items()
    }


def show_reference(attester: Attester, evidence_id: str) -> Document:
    return {"evidence_id": evidence_id, "cycles_evidence_url": attester.url_of(evidence_id)}


def _named(exchange: Exchange) -> str | None:
    """The reservation in the path."""
    named: str | None = exchange.scope["path_params"].get("reservation_id")
    return named


def _where(named: str | None) -> Document:
    return {} if named is None else {"reservation_id": named}


async def _owner(attester: Attester, exchange: Exchange) -> str | None:
    """Whose the thing is: an operator has no tenant here, and names only a reservation."""
    named = _named(exchange)
    if exchange.tenant_id is None and named is not None:
        return await attester.owner_of(named)
    return exchange.tenant_id


def _mirror(exchange: Exchange) -> Any:
    """The request as it was received; what was sent as null was not sent (decision 40)."""
    return _present(json.loads(exchange.sent))


def _present(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: inner if name in _FREE else _present(inner) for name, inner in value.items() if inner is not None}


# -- fetching ----------------------------------------------------------------------------------------------------------


async def get_evidence(exchange: Exchange) -> Answer:
    """The envelope as it was signed, for whoever has its id."""
    if (limited := _limit(exchange)) is not None:
        return limited
    evidence_id = exchange.path("evidence_id")
    if not _EVIDENCE_ID.fullmatch(evidence_id):
        message = "evidence_id must be 64 lower-case hexadecimal digits"
        return InvalidInput(field="evidence_id", reason="malformed", message=message)
    envelope = await exchange.runtime.evidence_reads.envelope(evidence_id)
    if envelope is None:
        return NotFound(field="evidence_id", message="no such evidence")
    return Reply(msgspec.Raw(envelope.encode()), headers=IMMUTABLE)


async def get_jwks(exchange: Exchange) -> Answer:
    """The keys that sign, and those that did. There are none where no evidence was ever given."""
    if (limited := _limit(exchange)) is not None:
        return limited
    keys = await exchange.runtime.evidence_reads.keys()
    if not keys:
        return NotFound(message="this server has not signed anything")
    return Reply({"keys": [show_key(key) for key in keys]}, headers=BRIEFLY)


def show_key(key: PublishedKey) -> Document:
    shown: Document = {
        "kty": "OKP",
        "crv": "Ed25519",
        "alg": "EdDSA",
        "x": base64.urlsafe_b64encode(key.public_key).decode().rstrip("="),
        "kid": key.kid,
        "cycles_nbf_ms": key.from_at,
        "status": "active" if key.until_at is None else "retired",
    }
    if key.until_at is not None:
        shown["cycles_exp_ms"] = key.until_at
    return shown


def _limit(exchange: Exchange) -> Failure | None:
    now = exchange.runtime.clock.local_ms()
    wait_ms = exchange.scope["app"].state.public_limit.wait_ms(exchange.source_ip, now=now)
    return None if wait_ms is None else public_limit(wait_ms)
