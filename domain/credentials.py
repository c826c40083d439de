"""Secrets of API keys: their form, the public prefix that finds the key, and what a valid one makes of its holder.

A secret of ours is `emk_<prefix>_<random>`. The root key may also be any other text from the environment; its prefix
is then the beginning of its hash. Kept is only the SHA-256 of the whole secret: with 160 random bits and more nothing
is gained by a slow hash, and it would be paid on every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from domain.authority import Principal
from domain.identity import ALPHABET

SECRET_LEAST: Final = 32
"""Characters of a secret: fewer could be guessed."""
SECRET_MOST: Final = 512
"""Longer ones are refused unread, so that nobody makes us hash megabytes."""

PREFIX_LENGTH: Final = 12
RANDOM_LENGTH: Final = 40
"""Characters that stay secret: 200 bits."""

_OURS: Final = re.compile(f"emk_([{ALPHABET}]{{{PREFIX_LENGTH}}})_[{ALPHABET}]{{{SECRET_LEAST},}}")


@dataclass(frozen=True, slots=True)
class Presented:
    """A secret as somebody sent it: all that is needed of it afterwards."""

    prefix: str
    digest: bytes


def present(secret: str) -> Presented | None:
    """None for what cannot be a secret, whoever sends it."""
    if not SECRET_LEAST <= len(secret) <= SECRET_MOST:
        return None
    try:
        digest = hashlib.sha256(secret.encode()).digest()
    except UnicodeEncodeError:  # half a surrogate pair: JSON can carry it
        return None
    ours = _OURS.fullmatch(secret)
    return Presented(ours[1] if ours else digest.hex()[:PREFIX_LENGTH], digest)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A secret that is no valid key, and whose it was: None where nobody knows, or may be told."""

    reason: str
    tenant_id: str | None = None
    key_id: str | None = None
    key_name: str | None = None


MALFORMED: Final = Unfit("invalid_format")
UNKNOWN: Final = Unfit("key_not_found")
"""A prefix that is known with another secret is no different: prefixes are public, so anybody could send it."""


def spell(*, prefix: str, random: str) -> str:
    """The secret with these parts."""
    return f"emk_{prefix}_{random}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A key as it is kept, with what its tenant's row says of its validity."""

    key_id: str
    tenant_id: str
    digest: bytes
    permissions: frozenset[str]
    is_root: bool
    expires_at: int | None
    revoked_at: int | None
    tenant_deleted_at: int | None
    key_name: str = ""
    scope_filter: tuple[str, ...] = ()

    def unfit_at(self, now: int) -> Unfit | None:
        """Why it cannot be used any more; None while it can. Half-open, as every term is: at `expires_at` it is over."""
        reason = None
        if self.revoked_at is not None:
            reason = "key_revoked"
        elif self.tenant_deleted_at is not None:
            reason = "tenant_closed"
        elif self.expires_at is not None and now >= self.expires_at:
            reason = "key_expired"
        if reason is None:
            return None
        return Unfit(reason, tenant_id=self.tenant_id, key_id=self.key_id, key_name=self.key_name)

    def matches(self, presented: Presented) -> bool:
        """Compared in constant time: the prefix is public, the digest is not."""
        return hmac.compare_digest(self.digest, presented.digest)

    def is_valid_at(self, now: int) -> bool:
        return self.unfit_at(now) is None

    @property
    def principal(self) -> Principal:
        return Principal(
            key_id=self.key_id,
            tenant_id=self.tenant_id,
            is_root=self.is_root,
            permissions=self.permissions,
            scope_filter=self.scope_filter,
        )
