"""What several commands share: settings from the call, printing for people or for scripts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from server import logs
from server.settings import Settings, load, wants_colour

BAR_WIDTH: Final = 30
REDRAW_S: Final = 0.1


def settings_of(given: argparse.Namespace, **fixed: Any) -> Settings:
    """Settings with the call's options on top. Sets up logging. Raises `SettingsError`."""
    names = ("host", "port", "data_dir")
    options = {name: getattr(given, name, None) for name in names}
    settings = load(**{**options, **fixed})
    logs.configure(level=settings.log_level, style=settings.log_format)
    return settings


def show(given: argparse.Namespace, value: Any, text: Callable[[], str]) -> None:
    """JSON for a script, or text for a person."""
    print(json.dumps(value, ensure_ascii=False) if given.json else text())


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if wants_colour() else text


class Progress:
    """A bar on a terminal; nothing elsewhere, where it would only fill a log."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._drawn_at = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or (now - self._drawn_at < REDRAW_S and done < total):
            return
        self._drawn_at = now
        filled = BAR_WIDTH * done // max(1, total)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        ending = "\n" if done >= total else ""
        print(f"\r{self._what} {bar} {done}/{total}{ending}", end="", file=sys.stderr, flush=True)
