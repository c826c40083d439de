"""The thresholds that subscriptions ask for, beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from storage.database import AnyConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """An active subscription that has thresholds of its own."""

    owner: str
    types: frozenset[str]
    categories: frozenset[str]
    thresholds: Mapping[str, Any]


_ASKING: Final = """
select s.tenant_id, s.event_types, s.event_categories, s.thresholds
from webhook_subscription s join webhook_head h on h.subscription_id = s.subscription_id
where s.thresholds is not null and s.deleted_at is null and h.status = 'ACTIVE'
"""


async def read_asking(connection: AnyConnection) -> list[Asking]:
    """All of them: few subscriptions have any."""
    return [
        Asking(
            owner=row["tenant_id"],
            types=frozenset(row["event_types"]),
            categories=frozenset(row["event_categories"]),
            thresholds=row["thresholds"],
        )
        for row in await connection.fetch(_ASKING)
    ]
