"""Checks of the settings stored on a provider account: each refusal names its field (`settings.path` …)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import shown


def refuse(name: str, message: str, *, reason: str = "malformed") -> InvalidInput:
    """A refusal of the setting `name`."""
    return InvalidInput(field=f"settings.{name}", message=f"settings.{name} {message}", reason=reason)


def check_keys(settings: Mapping[str, Any], *, known: Collection[str]) -> InvalidInput | None:
    """Unknown keys are refused: a mistyped one would silently leave its default in force (B34)."""
    if not isinstance(settings, Mapping):
        return InvalidInput(field="settings", message=f"settings must be an object, not {shown(settings)}")
    for name in settings:
        if name not in known:
            message = f"is not a setting of this provider (known: {', '.join(known) or 'none'})"
            return refuse(str(name)[:60], message, reason="unknown-key")
    return None


def check_text(
    settings: Mapping[str, Any], name: str, pattern: re.Pattern[str], *, words: str, required: bool = False
) -> InvalidInput | None:
    """The setting `name` is text of the form `pattern`, described to people as `words`."""
    if settings.get(name) is None:
        return refuse(name, f"is missing: {words}", reason="missing") if required else None
    value = settings[name]
    if isinstance(value, str) and pattern.fullmatch(value):
        return None
    return refuse(name, f"must be {words}, not {shown(value)}")


def check_choice(settings: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> InvalidInput | None:
    """The optional setting `name` is one of `choices`."""
    value = settings.get(name)
    if value is None or (isinstance(value, str) and value in choices):
        return None
    return refuse(name, f"must be {' or '.join(choices)}, not {shown(value)}")
