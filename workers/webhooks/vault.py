"""Secrets at rest: sealed with a key that is not in the database, and bound to the subscription they belong to."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE_LENGTH: Final = 12
"""Bytes; AES-GCM's own. Chance is enough: a key seals far fewer texts than would make two of them meet."""
KEY_LENGTH: Final = 32


class VaultError(Exception):
    """What was sealed cannot be opened: by another key, for another place, or it was changed."""


class Vault:
    """`root`: at least 32 bytes that nobody can guess. Every node of a database needs the same. `former`: a root that only
    opens what it has sealed."""

    def __init__(self, root: bytes, *, former: bytes | None = None) -> None:
        self.key_id = _id_of(root)
        self._ciphers = {_id_of(each): _cipher_of(each) for each in (root, former) if each is not None}
        self._digest_key = _derive(root, b"earmark webhook digests", KEY_LENGTH)

    @property
    def key_ids(self) -> list[str]:
        """Of all keys whose seals it opens."""
        return list(self._ciphers)

    @property
    def former_key_ids(self) -> list[str]:
        return [key_id for key_id in self._ciphers if key_id != self.key_id]

    def digest(self, text: str) -> str:
        """Stands for a secret where two of them are compared: nobody without the key can try what it may be."""
        return hmac.new(self._digest_key, text.encode(), sha256).hexdigest()

    def seal(self, text: str, *, place: str) -> bytes:
        """`place` says what it is and whose: put anywhere else, it does not open."""
        nonce = os.urandom(NONCE_LENGTH)
        return nonce + self._ciphers[self.key_id].encrypt(nonce, text.encode(), place.encode())

    def open(self, sealed: bytes, *, key_id: str, place: str) -> str:
        """Raises `VaultError`."""
        if (cipher := self._ciphers.get(key_id)) is None:
            raise VaultError(f"{place} is not sealed with a key of this node")
        try:
            plain = cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], place.encode())
        except InvalidTag:
            raise VaultError(f"{place} was sealed with another key, or has been changed") from None
        return plain.decode()


def _id_of(root: bytes) -> str:
    """A key's public name."""
    return _derive(root, b"earmark webhook key id", 8).hex()


def _cipher_of(root: bytes) -> AESGCM:
    return AESGCM(_derive(root, b"earmark webhook secrets", KEY_LENGTH))


def _derive(root: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(root)
