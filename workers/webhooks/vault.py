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
    """`root`: at least 32 bytes that nobody can guess. Every node of a database needs the same."""

    def __init__(self, root: bytes) -> None:
        self._cipher = AESGCM(_derive(root, b"earmark webhook secrets", KEY_LENGTH))
        self._digest_key = _derive(root, b"earmark webhook digests", KEY_LENGTH)
        self.key_id = _derive(root, b"earmark webhook key id", 8).hex()

    def digest(self, text: str) -> str:
        """Stands for a secret where two of them are compared: nobody without the key can try what it may be."""
        return hmac.new(self._digest_key, text.encode(), sha256).hexdigest()

    def seal(self, text: str, *, place: str) -> bytes:
        """`place` says what it is and whose: put anywhere else, it does not open."""
        nonce = os.urandom(NONCE_LENGTH)
        return nonce + self._cipher.encrypt(nonce, text.encode(), place.encode())

    def open(self, sealed: bytes, *, place: str) -> str:
        """Raises `VaultError`."""
        try:
            plain = self._cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], place.encode())
        except InvalidTag:
            raise VaultError(f"{place} was sealed with another key, or has been changed") from None
        return plain.decode()


def _derive(root: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(root)
