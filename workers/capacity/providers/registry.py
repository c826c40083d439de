"""Which provider serves which kind of account. The process makes one registry for the scan job and the desk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import shown
from workers.capacity.providers.file import FileProvider
from workers.capacity.providers.gce import GceProvider
from workers.capacity.providers.protocol import Provider
from workers.capacity.providers.push import PushProvider


class Registry:
    """The providers by their kind word. `inventory_directory` is where `file` accounts may read; None refuses them."""

    def __init__(self, *, inventory_directory: Path | None = None) -> None:
        providers: tuple[Provider, ...] = (
            FileProvider(inventory_directory=inventory_directory),
            PushProvider(),
            GceProvider(),
        )
        self._providers = {provider.name: provider for provider in providers}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind word, for a choice list and for messages."""
        return tuple(self._providers)

    def provider_for(self, kind: str) -> Provider | None:
        """The provider of a kind of account; None for a kind this version does not know."""
        return self._providers.get(kind)

    def validate_settings(self, *, kind: str, settings: Mapping[str, Any]) -> InvalidInput | None:
        """None when an account of `kind` may be created with `settings`.

        Refused: an unknown kind (field `provider`), then what the kind's provider refuses first.
        """
        provider = self.provider_for(kind)
        if provider is not None:
            return provider.validate_settings(settings)
        message = f"provider must be one of {', '.join(self.kinds)}, not {shown(kind)}"
        return InvalidInput(field="kind", message=message, reason="unknown-provider")
