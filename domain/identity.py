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
_WORDS: Final[dict[re.Pattern[str], str]] = {}


def grammar(pattern: str, words: str) -> re.Pattern[str]:
    """A pattern with what people are told that it wants: `must be …`."""
    compiled = re.compile(pattern)
    _WORDS[compiled] = words
    return compiled


def in_words(pattern: re.Pattern[str]) -> str:
    """What a `grammar` wants."""
    return _WORDS.get(pattern, "of the form that is documented")


def _name_of(extra: str, most: int) -> re.Pattern[str]:
    signs = " ".join(sorted(extra))
    return grammar(f"[A-Za-z0-9{extra}-]{{1,{most}}}", f"1 to {most} letters, digits and signs of {signs} -")


def _id_of(prefix: str) -> re.Pattern[str]:
    return grammar(f"{prefix}_{_BODY}", f"an id that begins with {prefix}_, as it was given out")


TENANT_ID: Final = _name_of("._:", 128)
SYSTEM: Final = "__system__"
"""No tenant, but the platform itself: the owner of subscriptions to everybody's events, and of what is nobody's."""
RESERVED_TENANT_IDS: Final = frozenset({"__admin__", "__unauth__", SYSTEM})
"""Words of the Cycles protocol for what is no tenant's: requests of operators and of nobody, and the system's events."""
IDEMPOTENCY_KEY: Final = _name_of("._:", 128)
RESERVATION_ID: Final = _name_of("._/:", 300)
POOL_ID: Final = _name_of("._:", 128)
FLAVOR: Final = _name_of("._:", 128)
ACCOUNT_ID: Final = _id_of("pacct")
PROJECT_ID: Final = _id_of("prj")
GRANT_ID: Final = _id_of("rgrant")
INSTANCE_ID: Final = _id_of("inst")
API_KEY_ID: Final = _id_of("key")
EVENT_ID: Final = _id_of("evt")
WEBHOOK_ID: Final = _id_of("whsub")

RESERVATION_KEY: Final = grammar(
    f"{ACCOUNT_ID.pattern}/{RESERVATION_ID.pattern}", "the id of an account, a slash, and the reservation's id on it"
)
"""What `reservation_key` makes."""


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
