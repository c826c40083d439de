"""The thresholds that are watched: the published ones, and those that somebody beyond this context asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from domain.budget.burning import PUBLISHED_BURN, BurnLevel
from domain.budget.rates import PUBLISHED_LEVELS, Level
from domain.budget.state import DEFAULT_THRESHOLDS
from storage.database import AnyConnection

AnyLevel = TypeVar("AnyLevel", Level, BurnLevel)


class Thresholds(Protocol):
    """What is asked for, as this node knows it. `load` before the first question; later ones cost nothing."""

    async def load(self, connection: AnyConnection) -> None: ...

    def utilizations(self, tenant_id: str) -> tuple[int, ...]:
        """In millionths of the allocation, rising; the same object as long as nothing changes."""
        ...

    def levels(self) -> Iterable[Level]: ...

    def burns(self) -> Iterable[BurnLevel]: ...


class PublishedThresholds:
    """Nobody asks for anything else."""

    async def load(self, connection: AnyConnection) -> None:
        """There is nothing to know."""

    def utilizations(self, tenant_id: str) -> tuple[int, ...]:
        return DEFAULT_THRESHOLDS

    def levels(self) -> Iterable[Level]:
        return PUBLISHED_LEVELS

    def burns(self) -> Iterable[BurnLevel]:
        return (PUBLISHED_BURN,)


def by_window(levels: Iterable[AnyLevel]) -> dict[int, list[AnyLevel]]:
    """By the length of their window; what is watched for everybody is not watched for single tenants beside it."""
    asked = set(levels)
    kept = [each for each in asked if each.tenant_id is None or replace(each, tenant_id=None) not in asked]
    windows: dict[int, list[AnyLevel]] = {}
    for level in sorted(kept, key=repr):
        windows.setdefault(level.window_ms, []).append(level)
    return windows


def tenants_of(levels: Iterable[AnyLevel]) -> list[str] | None:
    """Whose budgets or rates these levels are about; None: everybody's."""
    named = {level.tenant_id for level in levels}
    return None if None in named else sorted(name for name in named if name is not None)
