"""Evidence as it is put together: ids, signatures and canonical form (section 9; scenario 134)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from workers.budget.evidence import Artifact, Signer, derive_seed, seal

SERVER = "https://cycles.example.com/v1"
PUBLISHED: dict[str, Any] = {
    "artifact_type": "reserve",
    "evidence_id": "e051b4cd0e6dc5c98ac14b27bbabb2630098ef1a61650c92658b374a3cfb20a2",
    "issued_at_ms": 1810000000200,
    "payload": {
        "reserve": {
            "request": {
                "action": {"kind": "model.call", "name": "gpt-4o"},
                "estimate": {"amount": 50000000, "unit": "USD_MICROCENTS"},
                "idempotency_key": "01HZZ8N4F8FBQX5K6TGYR0M0B1",
                "subject": {"agent": "researcher", "tenant": "acme"},
                "ttl_ms": 30000,
            },
            "response": {
                "affected_scopes": ["tenant"],
                "balances": [
                    {
                        "remaining": {"amount": 8000000, "unit": "USD_MICROCENTS"},
                        "reserved": {"amount": 0, "unit": "USD_MICROCENTS"},
                        "scope": "tenant",
                        "scope_path": "tenant=acme",
                        "spent": {"amount": 92000000, "unit": "USD_MICROCENTS"},
                    }
                ],
                "decision": "DENY",
                "reason_code": "BUDGET_EXCEEDED",
                "scope_path": "tenant=acme",
            },
        }
    },
    "schema_version": "cycles-evidence/v0.1",
    "server_id": SERVER,
    "signature": "5a96f035651053bcdd6736778581ac5549f75dca78bedac1c6570fbc24b13000"
    "f2a23141b017f354ad635d1a085561ddfa3ad04b4250efc9b425b28016023806",
    "signer_did": "ec52b49b81eb29ef6f62947cade245c715bf943b7ef2a5f2789288574466fc43",
    "trace_id": "b9c8a0d3f2e147a9a7f4d2e1b0c9876f",
}
"""One of the protocol's own, signed with its published test key."""


def test_a_published_envelope_comes_out_to_the_byte() -> None:
    signer = Signer(sha256(b"cycles-evidence-v0.1-fixture-signer").digest())
    sealed = seal(
        signer,
        artifact="reserve",
        server_id=SERVER,
        issued_at=PUBLISHED["issued_at_ms"],
        trace_id=PUBLISHED["trace_id"],
        payload=PUBLISHED["payload"]["reserve"],
    )
    assert sealed.evidence_id == PUBLISHED["evidence_id"]
    assert sealed.text.encode() == rfc8785.dumps(PUBLISHED)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LARGEST = 2**53 - 1
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(-LARGEST, LARGEST) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(Artifact), st.dictionaries(TEXTS, VALUES, max_size=4), st.binary(min_size=32, max_size=32))
def test_whatever_is_attested_can_be_checked_by_the_rules(artifact: Artifact, payload: Any, seed: bytes) -> None:
    sealed = seal(
        Signer(seed), artifact=artifact, server_id=SERVER, issued_at=LARGEST, trace_id="0" * 31 + "1", payload=payload
    )
    envelope = json.loads(sealed.text)
    assert sealed.text.encode() == rfc8785.dumps(envelope)
    bare = rfc8785.dumps({**envelope, "evidence_id": "", "signature": ""})
    assert sha256(bare).hexdigest() == envelope["evidence_id"] == sealed.evidence_id
    signed = rfc8785.dumps({**envelope, "signature": ""})
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(envelope["signer_did"]))
    key.verify(bytes.fromhex(envelope["signature"]), signed)


def test_a_key_is_made_of_a_secret_always_the_same() -> None:
    assert derive_seed(b"s" * 32) == derive_seed(b"s" * 32) != derive_seed(b"t" * 32)
    assert Signer(derive_seed(b"s" * 32)).kid != Signer(derive_seed(b"t" * 32)).kid


@pytest.mark.parametrize("payload", [{"amount": 2**53}, {"x": "\ud800"}])
def test_what_canonical_json_cannot_carry_is_not_attested(payload: Any) -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        seal(Signer(b"s" * 32), artifact="decide", server_id=SERVER, issued_at=1, trace_id="", payload=payload)
