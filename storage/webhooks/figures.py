"""How webhooks are doing as a whole, for an operator's overview. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.webhooks.subscriptions import Subscription
from storage.database import AnyConnection
from storage.webhooks.subscriptions import read_subscriptions

SHOWN_MAX: Final = 10
"""Failing ones that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFigures:
    total: int
    active: int
    disabled: int
    with_failures: int
    failing: tuple[Subscription, ...]
    """Those with the most failures in a row."""


_COUNTS: Final = """
select count(*) as total, count(*) filter (where h.status = 'ACTIVE') as active,
    count(*) filter (where h.status = 'DISABLED') as disabled,
    count(*) filter (where h.consecutive_failures > 0) as with_failures
from webhook_head h join webhook_subscription s on s.subscription_id = h.subscription_id where s.deleted_at is null
"""
_FAILING: Final = """
select h.subscription_id
from webhook_head h join webhook_subscription s on s.subscription_id = h.subscription_id
where s.deleted_at is null and h.consecutive_failures > 0
order by h.consecutive_failures desc, h.subscription_id limit $1
"""


async def read_figures(connection: AnyConnection) -> WebhookFigures:
    counts = await connection.fetchrow(_COUNTS)
    assert counts is not None, "counting always gives a row"
    ids = [row["subscription_id"] for row in await connection.fetch(_FAILING, SHOWN_MAX)]
    kept = await read_subscriptions(connection, ids)
    return WebhookFigures(**dict(counts), failing=tuple(kept[name].subscription for name in ids if name in kept))
