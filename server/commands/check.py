"""`earmark check`: is everything in place for a node to start here?"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from server.commands.common import settings_of, show
from server.process import check_packages, check_version, missing_home, reachable_database, version_of
from server.settings import Settings, SettingsError
from storage.database import connect
from storage.migrate import known, pending


def run(given: argparse.Namespace) -> int:
    results: list[dict[str, Any]] = []
    settings = _settings(given, results)
    _try(results, "python", lambda: sys.version.split()[0])
    _try(results, "packages", _packages)
    if settings is not None:
        _try(results, "database", lambda: _database(settings))
    is_well = all(result["ok"] for result in results)
    shown = {} if settings is None else settings.shown()
    show(given, {"ok": is_well, "checks": results, "settings": shown}, lambda: _text(results, shown))
    return 0 if is_well else 1


def _settings(given: argparse.Namespace, results: list[dict[str, Any]]) -> Settings | None:
    try:
        settings = settings_of(given)
    except SettingsError as error:
        results.append({"check": "settings", "ok": False, "detail": str(error)})
        return None
    results.append({"check": "settings", "ok": True, "detail": "every one is known and well-formed"})
    return settings


def _try(results: list[dict[str, Any]], name: str, check: Callable[[], str]) -> None:
    try:
        results.append({"check": name, "ok": True, "detail": check()})
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the finding
        results.append({"check": name, "ok": False, "detail": str(error) or type(error).__name__})


def _text(results: list[dict[str, Any]], shown: dict[str, str]) -> str:
    """One line a check, and under the first one the settings that were given."""
    lines = [f"{'ok  ' if result['ok'] else 'FAIL'} {result['check']:9} {result['detail']}" for result in results]
    given = [f"{'':14} {name}={value}" for name, value in shown.items() if name in os.environ]
    return "\n".join([lines[0], *given, *lines[1:]])


def _packages() -> str:
    check_packages()
    return "the package schema is ours"


def _database(settings: Settings) -> str:
    if (home := missing_home(settings)) is not None:
        return f"none yet: the first start makes an embedded PostgreSQL in {home}"
    with reachable_database(settings) as url:
        return asyncio.run(_look(url))


async def _look(url: str) -> str:
    connection = await connect(url)
    try:
        number = await version_of(connection)
        check_version(number)
        missing = await pending(connection)
    finally:
        await connection.close()
    state = f"{len(missing)} migrations to apply (earmark migrate)" if missing else f"{len(known())} migrations applied"
    return f"PostgreSQL {number // 10_000}.{number % 10_000}, {state}"
