"""Names of things: the grammars of ids (R2) and the id alphabet. Making an id needs chance and is the desk's (`workers.ids`).

Every check is a `fullmatch` over ASCII classes: no trimming, no unicode, no trailing newline (D23).
"""

from __future__ import annotations

import re
from typing import Final

ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Lower-case Crockford base32: digits and letters without i, l, o, u."""

PAIRS: Final = tuple(first + second for first in ALPHABET for second in ALPHABET)
"""All pairs of them, by ten bits: half the steps of one at a time."""

_BODY: Final = "[0-9a-hjkmnp-tv-z]{26,52}"

TENANT_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
RESERVED_TENANT_IDS: Final = frozenset({"__admin__", "__unauth__", "__system__"})
"""Words of the Cycles protocol for what is no tenant's: requests of operators and of nobody, and the system's events."""
IDEMPOTENCY_KEY: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
RESERVATION_ID: Final = re.compile(r"[A-Za-z0-9._/:-]{1,300}")
POOL_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
FLAVOR: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ACCOUNT_ID: Final = re.compile(f"pacct_{_BODY}")
PROJECT_ID: Final = re.compile(f"prj_{_BODY}")
GRANT_ID: Final = re.compile(f"rgrant_{_BODY}")
INSTANCE_ID: Final = re.compile(f"inst_{_BODY}")
API_KEY_ID: Final = re.compile(f"key_{_BODY}")
EVENT_ID: Final = re.compile(f"evt_{_BODY}")
WEBHOOK_ID: Final = re.compile(f"whsub_{_BODY}")


def encode_bits(number: int, *, characters: int) -> str:
    """`number` in the id alphabet, most significant character first, padded with zeros to `characters`."""
    pairs = []
    for _ in range(0, characters, 2):
        pairs.append(PAIRS[number & 1023])
        number >>= 10
    return "".join(reversed(pairs))[-characters:]


def reservation_key(account_id: str, reservation_id: str) -> str:
    """The one key of a capacity reservation. An account id holds no slash, so the first slash parts the two again."""
    return f"{account_id}/{reservation_id}"


def split_reservation_key(key: str) -> tuple[str, str]:
    """(account id, reservation id) of a key made by `reservation_key`."""
    account_id, _, reservation_id = key.partition("/")
    return account_id, reservation_id
