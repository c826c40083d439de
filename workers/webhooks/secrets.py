"""A subscription's secrets, between the vault and whoever signs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from domain.outcomes import InvalidInput
from domain.webhooks.messages import MASK
from storage.webhooks.subscriptions import Kept, Sealed
from workers.webhooks.vault import Vault, VaultError

SECRET_BYTES: Final = 32

_headers: Final = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Not to be logged or shown."""

    signing_secret: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return "Secrets(…)"


def new_signing_secret() -> str:
    return f"whsec_{os.urandom(SECRET_BYTES).hex()}"


def seal(vault: Vault, subscription_id: str, secrets: Secrets) -> Sealed:
    headers = None
    if secrets.headers:
        text = msgspec.json.encode(dict(secrets.headers)).decode()
        headers = vault.seal(text, place=f"{subscription_id}/headers")
    secret = vault.seal(secrets.signing_secret, place=f"{subscription_id}/secret")
    return Sealed(key_id=vault.key_id, secret=secret, headers=headers)


def unseal(vault: Vault, kept: Kept) -> Secrets:
    """Raises `VaultError`."""
    sealed, subscription_id = kept.sealed, kept.subscription.subscription_id
    if sealed is None:
        raise VaultError(f"{subscription_id} has no secrets any more")
    signing_secret = vault.open(sealed.secret, key_id=sealed.key_id, place=f"{subscription_id}/secret")
    if sealed.headers is None:
        return Secrets(signing_secret=signing_secret, headers={})
    return Secrets(
        signing_secret=signing_secret,
        headers=_headers.decode(vault.open(sealed.headers, key_id=sealed.key_id, place=f"{subscription_id}/headers")),
    )


def changed(
    before: Secrets, *, signing_secret: str | None, headers: Mapping[str, str] | None
) -> Secrets | InvalidInput:
    """What is None stays, and so does the value of a header that comes back masked."""
    after = before if signing_secret is None else replace(before, signing_secret=signing_secret)
    if headers is None:
        return after
    known = {name.lower(): value for name, value in before.headers.items()}
    for name, value in headers.items():
        if value == MASK and name.lower() not in known:
            return InvalidInput(field="headers", reason="masked", message=f"the value of {name} is only a mask")
    kept = {name: known[name.lower()] if value == MASK else value for name, value in headers.items()}
    return replace(after, headers=kept)
