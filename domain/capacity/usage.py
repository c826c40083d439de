"""Metered usage as it is read: the records of the meter, and their totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from domain.capacity.metering import hours_text


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """What one thing used in one hour. `source_key` names the thing and the hour: there is one record of it (R41)."""

    tenant_id: str
    source_key: str
    project_id: str | None
    meter: str
    hour_start: int
    quantity_ms: int
    """Slot- or instance-milliseconds; negative in a correction (D6)."""
    grant_id: str | None
    instance_id: str | None
    tags: Mapping[str, Any]
    written_at: int

    @property
    def hours(self) -> str:
        return hours_text(self.quantity_ms)


class UsageGroup(StrEnum):
    """What totals can be taken apart by, besides the meter: sums over different meters mean nothing."""

    HOUR = "hour"
    DAY = "day"
    """UTC."""
    TENANT = "tenant"
    PROJECT = "project"
    GRANT = "grant"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """Records of one meter added up as integers (R47). What was not grouped by is None, and so is what records lack."""

    meter: str
    quantity_ms: int
    records: int
    hour_start: int | None = None
    day_start: int | None = None
    tenant_id: str | None = None
    project_id: str | None = None
    grant_id: str | None = None

    @property
    def hours(self) -> str:
        return hours_text(self.quantity_ms)
