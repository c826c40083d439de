"""One action for every webhook that a filter finds, in one transaction: the operator's broom (11.9)."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from domain.budget.events import AuditEntry
from domain.budget.shapes import check_length, check_range
from domain.budget.values import ActorType, Origin
from domain.outcomes import Accepted, Conflict, InvalidInput, InvalidState, Outcome
from domain.webhooks import events
from domain.webhooks.queries import WebhookQuery
from domain.webhooks.subscriptions import Status, Subscription, decide_update
from domain.webhooks.targets import host_of
from storage.budget.audit_log import flush_entry
from storage.database import AnyConnection
from storage.webhooks.subscriptions import Kept, flush_change, lock_heads, page_subscriptions, read_subscriptions
from workers.budget.audit_log import ADMIN_TENANT
from workers.budget.listing import refuse_query
from workers.budget.rights import origin_of, refuse
from workers.registry import Turn
from workers.request import Caller
from workers.webhooks import rights
from workers.webhooks.desk import delete_one
from workers.webhooks.writing import Tools, end_of_mirror, refuse_closed, tell

BULK: Final = "webhooks.bulk"
ROWS_MAX: Final = 500
KEY_MAX: Final = 128

TOO_MANY: Final = "too-many"
COUNT_MISMATCH: Final = "count-mismatch"
ALREADY_SO: Final = "ALREADY_IN_TARGET_STATE"
ALREADY_GONE: Final = "ALREADY_DELETED"


class BulkAction(StrEnum):
    PAUSE = "PAUSE"
    RESUME = "RESUME"
    DELETE = "DELETE"


@dataclass(slots=True, kw_only=True)
class BulkDone:
    """What became of each. `failed`: (id, code, message); `skipped`: (id, reason)."""

    total_matched: int
    succeeded: list[str] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


_decode: Final = msgspec.json.Decoder(BulkDone).decode


class WebhookBulkDesk:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def act(
        self,
        caller: Caller,
        *,
        action: BulkAction,
        query: WebhookQuery,
        tenant_id: str | None,
        idempotency_key: str,
        expected_count: int | None = None,
    ) -> Outcome[BulkDone]:
        """Operators only. A retry under the same key gets the first answer. Rows that cannot be acted on fail alone.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, CONFLICT (key), INVALID_INPUT (`too-many` match), CONFLICT
        (`count-mismatch`).
        """
        own = caller.principal.tenant_id
        if denied := refuse(caller, rights.OPERATE, own, as_admin=True):
            return denied
        refused = (
            check_length(idempotency_key, field="idempotency_key", least=1, most=KEY_MAX)
            or check_range(expected_count, field="expected_count", least=0, most=2**31)
            or refuse_query(query, tenant_id, 1)
        )
        if refused is not None:
            return refused
        asked = {name: value for name, value in asdict(query).items() if name in ("status", "event_type", "search")}
        content = {"action": action, "tenant_id": tenant_id, "expected_count": expected_count, **asked}
        key = hashlib.sha256(idempotency_key.encode()).hexdigest()  # whatever text it is
        request = self._tools.registrar.request(caller, BULK, idempotency_key=key, content=content)
        origin = replace(origin_of(caller, own), actor_type=ActorType.ADMIN)

        async def decide(turn: Turn) -> Outcome[BulkDone]:
            page = await page_subscriptions(
                turn.connection, query, tenant_id=tenant_id, scope_filter=(), after=None, limit=ROWS_MAX
            )
            if page.has_more:
                message = f"more than {ROWS_MAX} webhooks match: narrow the filter"
                return InvalidInput(field="filter", reason=TOO_MANY, message=message)
            if expected_count is not None and expected_count != len(page.items):
                message = f"{len(page.items)} webhooks match, not {expected_count}"
                return Conflict(reason=COUNT_MISMATCH, message=message)
            broom = _Broom(turn, self._tools, action, origin, await turn.now())
            done = await broom.sweep([each.subscription_id for each in page.items])
            await self._write_down(turn.connection, tenant_id, origin, done, content, now=broom.now)
            await tell(turn.connection, self._tools.ids, broom.told, now=broom.now)
            return Accepted(done)

        async def again(_connection: AnyConnection, text: str) -> BulkDone:
            return _decode(text)

        outcome = await self._tools.registrar.write(
            request, decide, subject=lambda done: msgspec.json.encode(done).decode(), again=again
        )
        await self._tools.changed()
        return outcome

    async def _write_down(
        self,
        connection: AnyConnection,
        tenant_id: str | None,
        origin: Origin,
        done: BulkDone,
        content: dict[str, Any],
        *,
        now: int,
    ) -> None:
        """One entry for the whole."""
        counts = {name: len(getattr(done, name)) for name in ("succeeded", "failed", "skipped")}
        filters = {name: value for name, value in content.items() if value is not None}
        entry = AuditEntry(
            operation="bulkActionWebhooks",
            recorded_at=now,
            resource_type="webhook",
            resource_id=None,
            origin=origin,
            metadata={**filters, "total_matched": done.total_matched, **counts},
        )
        await flush_entry(connection, tenant_id or ADMIN_TENANT, self._tools.ids.new("aud"), entry)


class _Broom:
    """One sweep, in one transaction."""

    def __init__(self, turn: Turn, tools: Tools, action: BulkAction, origin: Origin, now: int) -> None:
        self._connection = turn.connection
        self._tools = tools
        self._action = action
        self._origin = origin
        self._correlation_id = f"webhook_bulk_action:{action.lower()}:{origin.request_id or ''}"
        self._closed: dict[str, InvalidState | None] = {}
        self.now = now
        self.told: list[events.WebhookEvent] = []

    async def sweep(self, names: list[str]) -> BulkDone:
        done = BulkDone(total_matched=len(names))
        await lock_heads(self._connection, names)
        kept = await read_subscriptions(self._connection, names)
        place = await end_of_mirror(self._connection)
        for name in names:
            if name not in kept:
                done.skipped.append((name, ALREADY_GONE))
            else:
                await self._act(kept[name], done, place=place)
        return done

    async def _act(self, kept: Kept, done: BulkDone, *, place: int) -> None:
        webhook, name = kept.subscription, kept.subscription.subscription_id
        if (closed := await self._refuse_closed(webhook.tenant_id)) is not None:
            done.failed.append((name, "TENANT_CLOSED", closed.message))
        elif self._action is BulkAction.DELETE:
            await delete_one(self._connection, webhook, now=self.now)
            self.told.append(events.deleted(webhook, self._origin, correlation_id=self._correlation_id))
            done.succeeded.append(name)
        elif self._action is BulkAction.RESUME and webhook.status is Status.DISABLED:
            message = "a disabled webhook is resumed one by one, after a look at why"
            done.failed.append((name, "INVALID_TRANSITION", message))
        elif self._is_so(webhook):
            done.skipped.append((name, ALREADY_SO))
        else:
            await self._set_status(kept, place=place)
            done.succeeded.append(name)

    def _is_so(self, webhook: Subscription) -> bool:
        wanted = Status.ACTIVE if self._action is BulkAction.RESUME else Status.PAUSED
        return webhook.status in (wanted, Status.DISABLED)

    async def _set_status(self, kept: Kept, *, place: int) -> None:
        status = Status.ACTIVE if self._action is BulkAction.RESUME else Status.PAUSED
        change = decide_update(
            kept.subscription, {}, status=status, has_new_secret=False, header_names=None, now=self.now
        )
        assert not isinstance(change, InvalidInput), "a status alone breaks no rule"
        assert kept.sealed is not None, "only a deleted one has none"
        host = host_of(change.after.url)
        await flush_change(self._connection, change, kept.sealed, host=host, now=self.now, place=place)
        self.told.append(events.changed(change, self._origin, correlation_id=self._correlation_id))

    async def _refuse_closed(self, owner: str) -> InvalidState | None:
        if owner not in self._closed:
            self._closed[owner] = await refuse_closed(self._connection, owner)
        return self._closed[owner]
