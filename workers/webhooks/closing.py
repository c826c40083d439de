"""A tenant was closed: its webhooks are disabled for good, each told of and written down (section 7, cascade rule 1).

The tenant itself is closed first, in the turn of its budgets; from then on its webhooks cannot be changed. What is here
follows on its heels, from the event that tells of it, and is harmless when done twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from domain.budget.values import ActorType, Origin
from domain.events import TRACE_FLAGS, EventRecord
from domain.webhooks.deliveries import CANCELLED
from domain.webhooks.events import EventType, WebhookEvent, disabled_with_tenant
from domain.webhooks.subscriptions import Status
from storage.database import AnyConnection
from storage.webhooks.deliveries import flush_cancelled
from storage.webhooks.subscriptions import flush_disabled, lock_heads, read_ids_of_tenant, read_subscriptions
from workers.ids import IdSource
from workers.webhooks.writing import Tools, tell, write_down


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What ties the cascade to the closing."""

    origin: Origin
    correlation_id: str | None = None


def cause_of(event: EventRecord) -> Cause:
    """`event` tells of the closing."""
    actor = event.payload.get("actor", {})
    origin = Origin(
        actor_type=ActorType(actor.get("type", ActorType.SYSTEM)),
        key_id=actor.get("key_id"),
        source_ip=actor.get("source_ip"),
        request_id=event.request_id,
        trace_id=event.trace_id,
        trace_flags=event.payload.get(TRACE_FLAGS),
    )
    return Cause(origin=origin, correlation_id=event.payload.get("correlation_id"))


async def disable_all(
    connection: AnyConnection, ids: IdSource, subscription_ids: Iterable[str], cause: Cause, *, now: int
) -> list[WebhookEvent]:
    """What is to be told of it, by the caller. All of these belong to a closed tenant."""
    wanted = sorted(subscription_ids)
    await lock_heads(connection, wanted)
    kept = await read_subscriptions(connection, wanted)
    open_ones = [kept[name].subscription for name in wanted if name in kept]
    open_ones = [each for each in open_ones if each.status is not Status.DISABLED]
    # Also what waits behind one that had disabled itself: it will never be resumed.
    await flush_cancelled(connection, wanted, error=CANCELLED, now=now)
    for subscription in open_ones:
        await flush_disabled(connection, subscription.subscription_id, now=now)
        operation = EventType.DISABLED_VIA_CASCADE.value
        await write_down(
            connection, ids, operation, subscription, cause.origin, now=now, correlation_id=cause.correlation_id
        )
    return [
        disabled_with_tenant(
            subscription,
            correlation_id=cause.correlation_id,
            request_id=cause.origin.request_id,
            trace_id=cause.origin.trace_id,
        )
        for subscription in open_ones
    ]


class ClosingDesk:
    """For a tenant that was deleted as a whole, budgets or not."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def close_tenant(self, tenant_id: str) -> None:
        """Harmless when done twice, and beside what the event of the closing brings about."""
        async with self._tools.registrar.writing() as turn:
            names = await read_ids_of_tenant(turn.connection, tenant_id)
            cause = Cause(origin=Origin(actor_type=ActorType.SYSTEM))
            now = await turn.now()
            told = await disable_all(turn.connection, self._tools.ids, names, cause, now=now)
            await tell(turn.connection, self._tools.ids, told, now=now)
