"""Webhooks on a real database for tests: nodes with their couriers at rest, receivers, and short ways to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

from domain.amounts import Amount, Unit
from domain.authority import EVERYTHING, Principal
from domain.budget.queries import Window
from domain.budget.values import Action, Subject
from domain.events import MIRROR, EventRecord
from domain.outcomes import Accepted, Outcome, Refusal
from domain.tenancy import Tenant
from domain.webhooks.deliveries import Delivery
from domain.webhooks.queries import DeliveryQuery
from domain.webhooks.subscriptions import Subscription
from domain.webhooks.targets import PERMISSIVE, Security
from storage import identity
from storage.database import Connection, Database, connect
from storage.events import Outbox, read_tail
from workers.clock import Clock, DatabaseClock, ManualClock
from workers.request import Caller
from workers.runtime import Runtime, RuntimeOptions
from workers.webhooks.desk import CreatedWebhook, WebhookChanges

START = 1_800_000_000_000
ROOT, ACME, OTHER = "root", "acme", "other"
SCOPE = "tenant:acme"
SECRET_KEY = b"the secret key of a test, 32 bytes and more"
TOKENS = Unit.TOKENS


def member(tenant_id: str, *words: str, scope_filter: tuple[str, ...] = (), **request: Any) -> Caller:
    """A member of a tenant; without words, one that may everything there."""
    principal = Principal(
        key_id=f"key_{tenant_id}",
        tenant_id=tenant_id,
        is_root=tenant_id == ROOT,
        permissions=frozenset(words or {EVERYTHING}),
        scope_filter=scope_filter,
    )
    return Caller(principal=principal, **{"request_id": "req_test", "trace_id": "0" * 31 + "1", **request})


class WebhookWorld:
    """`nodes` share a database and, if it is a manual one, a clock."""

    def __init__(self, nodes: Sequence[Runtime], clock: Clock, connection: Connection) -> None:
        self.nodes = nodes
        self.clock = clock
        self.connection = connection
        self.root, self.acme, self.other = (member(name) for name in (ROOT, ACME, OTHER))
        self._keys = count(1)

    @property
    def node(self) -> Runtime:
        return self.nodes[0]

    def advance(self, milliseconds: int) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(milliseconds)

    # -- asking ----------------------------------------------------------------------------------------------------

    async def subscribe(self, url: str, *types: str, by: Caller | None = None, **given: Any) -> CreatedWebhook:
        wanted = {"event_types": types or ("budget.funded",), **given}
        return accepted(await self.node.webhooks.create(by or self.acme, url=url, **wanted))

    async def change(self, webhook_id: str, *, by: Caller | None = None, **changes: Any) -> Subscription:
        changed = WebhookChanges(**changes)
        return accepted(await self.node.webhooks.update(by or self.root, webhook_id=webhook_id, changes=changed))

    async def fund(self, amount: int = 1, *, scope: str = SCOPE, by: Caller | None = None, **given: Any) -> None:
        """One event: budget.funded."""
        from domain.budget.records import FundingOperation

        outcome = await self.node.budgets.fund(
            by or self.acme,
            scope=scope,
            unit=TOKENS,
            kind=FundingOperation.CREDIT,
            amount=Amount(TOKENS, amount),
            idempotency_key=f"key-{next(self._keys)}",
            **given,
        )
        assert not isinstance(outcome, Refusal), outcome

    async def budget(self, scope: str = SCOPE, *, by: Caller | None = None) -> None:
        outcome = await self.node.budgets.create_budget(
            by or self.acme, scope=scope, unit=TOKENS, allocated=Amount(TOKENS, 1_000)
        )
        assert isinstance(outcome, Accepted), outcome

    async def deny(self) -> None:
        """One event: reservation.denied."""
        outcome = await self.node.budgets.reserve(
            self.acme,
            idempotency_key=f"key-{next(self._keys)}",
            subject=Subject(tenant=ACME),
            action=Action(kind="llm.completion", name="gpt"),
            estimate=Amount(TOKENS, 10**12),
        )
        assert isinstance(outcome, Refusal), outcome

    # -- moving on -------------------------------------------------------------------------------------------------

    async def relay(self) -> None:
        """Every event is in its stream."""
        while any([await self._waiting(outbox) for outbox in Outbox]):
            await self.node.relay.flush()
            await asyncio.sleep(0.005)

    async def deliver(self, *, node: int = 0) -> dict[str, int]:
        """Hand out what there is, and deliver what is due: a run of the job."""
        await self.relay()
        ran = await self.nodes[node].courier.run_once()
        return dict(ran.counts)

    # -- looking ---------------------------------------------------------------------------------------------------

    async def webhook(self, webhook_id: str) -> Subscription:
        found = await self.node.webhook_reads.webhook(self.root, webhook_id=webhook_id)
        assert isinstance(found, Subscription), found
        return found

    async def deliveries(self, webhook_id: str, **query: Any) -> list[Delivery]:
        """In the order of their making."""
        wanted = DeliveryQuery(descending=False, **query)
        found = await self.node.webhook_reads.deliveries(self.root, webhook_id=webhook_id, query=wanted, limit=200)
        assert not isinstance(found, Refusal), found
        return list(found.items)

    async def events(self, *types: str, stream: str = MIRROR) -> list[EventRecord]:
        """What a stream holds, of some types."""
        await self.relay()
        found = await read_tail(self.connection, stream, after=0, limit=100_000)
        return [event for event in found if not types or event.type in types]

    async def value(self, sql: str, *arguments: Any) -> Any:
        return await self.connection.fetchval(sql, *arguments)

    async def _waiting(self, outbox: Outbox) -> int:
        return await self.value(f"select count(*) from {outbox.value}")


def accepted(outcome: Outcome[Any]) -> Any:
    assert isinstance(outcome, Accepted), outcome
    return outcome.answer


def refused(outcome: Any) -> tuple[str, str | None]:
    """(code, what it says besides: a reason, or a state)."""
    assert isinstance(outcome, Refusal), outcome
    details = outcome.details()
    return outcome.code, details.get("reason") or details.get("state")


def window(since: int, until: int) -> Window:
    return Window(since, until)


@asynccontextmanager
async def webhook_world(
    url: str,
    *,
    nodes: int = 1,
    clock: Clock | None = None,
    security: Security = PERMISSIVE,
    runs_jobs: bool = False,
    secret_key: bytes | None = SECRET_KEY,
    **options: Any,
) -> AsyncIterator[WebhookWorld]:
    """Root, acme with a budget, and other. Couriers stand still unless a test says so."""
    clock = clock or ManualClock(START)
    chosen = RuntimeOptions(runs_jobs=runs_jobs, secret_key=secret_key, webhook_security=security, **options)
    async with AsyncExitStack() as stack:
        connection = await connect(url)
        stack.push_async_callback(connection.close)
        if await connection.fetchval("select count(*) from tenant") == 0:
            await _make_tenants(connection, clock)
        made = []
        for _ in range(nodes):
            database = await Database.open(url)
            stack.push_async_callback(database.close)
            node = Runtime(database, clock=clock, options=chosen)
            node.start()
            stack.push_async_callback(node.stop)
            made.append(node)
        world = WebhookWorld(made, clock, connection)
        if await connection.fetchval("select count(*) from budget") == 0:
            await world.budget()
        await world.relay()
        yield world


async def _make_tenants(connection: Connection, clock: Clock) -> None:
    created_at = START if isinstance(clock, ManualClock) else DatabaseClock().local_ms()
    for name in (ROOT, ACME, OTHER):
        tenant = Tenant(tenant_id=name, name=name, is_root=name == ROOT, created_at=created_at)
        if tenant.is_root:
            await identity.flush_root_tenant(connection, name, name=name, created_at=created_at)
        else:
            await identity.flush_tenant(connection, tenant)
