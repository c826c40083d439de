"""What happens to budgets, as a stream that goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final

import strawberry

from domain.events import EventRecord
from schema.budget.answers import read
from schema.context import Operation, operation
from schema.events import RESUME
from schema.inputs import ALL, own_tenant
from schema.scalars import Int64, JSONObject, Millis
from schema.sharing import Answers

BELOW: Final = strawberry.argument(description="Only events about this scope and what lies below it.")
KINDS: Final = strawberry.argument(description="Only events of these types, such as budget.exhausted.")

_SMALL: Final = ("_at", "_ms", "_millionths")
"""How the names of numbers end that are no amounts: JSON's own numbers hold them."""
_COUNTS: Final = frozenset({"extensions_used"})


# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetEvent:
    """Something that happened to a tenant's budgets. Its place in the stream is `seq`."""

    id: strawberry.ID
    cursor: str = strawberry.field(description="Resumes right after this event, in events and in budgetEvents.")
    seq: Int64
    type: str
    tenant_id: strawberry.ID
    scope: str | None
    occurred_at: Millis
    recorded_at: Millis
    actor_type: str | None = strawberry.field(description="Who asked; null when a hold's time was over.")
    correlation_id: str | None = strawberry.field(description="Events of one cascade have the same.")
    data: JSONObject = strawberry.field(
        description="The facts, named as under /v1. Amounts are strings of decimal digits; instants are milliseconds."
    )
    request_id: str | None
    trace_id: str | None
    answers: strawberry.Private[Answers] = strawberry.field(default_factory=dict)

    @classmethod
    def of(cls, event: EventRecord) -> BudgetEvent:
        """One object an event, for all who listen."""
        shown = event.shown.get(cls)
        if shown is None:
            shown = event.shown[cls] = cls._of(event)
        return shown

    @classmethod
    def _of(cls, event: EventRecord) -> BudgetEvent:
        payload = event.payload
        return cls(
            id=strawberry.ID(event.event_id),
            cursor=event.cursor,
            seq=Int64(event.seq),
            type=event.type,
            tenant_id=strawberry.ID(event.tenant_id),
            scope=payload.get("scope"),
            occurred_at=Millis(event.occurred_at),
            recorded_at=Millis(event.recorded_at),
            actor_type=payload.get("actor", {}).get("type"),
            correlation_id=payload.get("correlation_id"),
            data=JSONObject(_exact("", payload["data"])),
            request_id=event.request_id,
            trace_id=event.trace_id,
        )


def _exact(name: str, value: Any) -> Any:
    """Amounts as strings: 64 bits do not survive as a number everywhere."""
    if isinstance(value, Mapping):
        return {key: _exact(key, inner) for key, inner in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith(_SMALL) and name not in _COUNTS:
        return str(value)
    return value


# -- subscription ------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetEventSubscription:
    @strawberry.subscription
    async def budget_events(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        scope: Annotated[str | None, BELOW] = None,
        types: Annotated[list[str] | None, KINDS] = None,
        after: Annotated[str | None, RESUME] = None,
    ) -> AsyncGenerator[BudgetEvent, None]:
        """Events about the tenant, its budgets and its holds, as they happen; for root those about policies and keys
        too. When the server ends the stream, the error's extensions have a code and the cursor to resume with. The key
        needs events:read."""
        current = operation()
        chosen = read(
            current.runtime.budget_reads.event_choice(
                current.caller,
                tenant_id=None if all_tenants else own_tenant(tenant_id),
                scope=scope,
                types=types,
                after=after,
            )
        )
        stream = current.runtime.hub.subscribe(
            chosen.stream, key_id=current.caller.principal.key_id, after=chosen.after, accept=chosen.accepts
        )
        return _shown(current, stream)


async def _shown(current: Operation, stream: AsyncGenerator[EventRecord, None]) -> AsyncGenerator[BudgetEvent, None]:
    """Leaves the hub at once when the client leaves, instead of when the garbage is collected (B27)."""
    async with aclosing(stream) as records:
        async for record in records:
            current.begin()
            yield BudgetEvent.of(record)
