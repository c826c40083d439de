"""Events to sockets: one burst to everybody, shared against one execution a subscriber; and a steady stream to many
tenants' subscribers, timed from the append to the socket.

Both kinds of subscribers talk to the same server over the same sockets. What keeps an answer from being shared is a
variable below the root field: then each subscriber has the document executed for itself, as the library does it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from storage.database import Connection, connect
from tests.bench.bench import Bench
from tests.bench.serving import ROOT_KEY, KeepAlive, Served, served_earmark
from tests.bench.sockets import Listener

FIELDS: Final = "id seq type tenantId grantId slots startsAt endsAt occurredAt"
SHARED: Final = f"subscription {{ grantEvents(all: true) {{ {FIELDS} }} }}"
OWN: Final = f"subscription ($yes: Boolean!) {{ grantEvents(all: true) {{ {FIELDS} type @include(if: $yes) }} }}"
OF_TENANT: Final = f"subscription {{ grantEvents {{ {FIELDS} }} }}"

SUBSCRIBERS: Final = (1_000, 5_000)
MESSAGES: Final = 60_000
"""Of one burst, shared; those that are executed one by one get a tenth."""
RATE_GOAL, RATIO_GOAL = 40_000, 6.0

STEADY_SUBSCRIBERS, STEADY_TENANTS = 2_000, 40
STEADY_RATE, STEADY_S = 50, 6
STEADY_GOAL_MS: Final = 250
OPEN_AT_ONCE: Final = 50
WITHIN_S: Final = 120.0
POLL_S: Final = 0.005
PERCENTILES: Final = 20

APPEND: Final = """
select event_append((
    select json_agg(json_build_object(
        'event_id', 'evt_' || $1 || '_' || n, 'tenant_id', $2::text, 'type', 'reservation-grant.created',
        'occurred_at', 1, 'recorded_at', (extract(epoch from clock_timestamp()) * 1000)::bigint,
        'payload', json_build_object('grantId', 'rgrant_x', 'slots', 3, 'startsAt', 1, 'endsAt', 2),
        'request_id', null, 'trace_id', null, 'is_for_operators', false
    )) from generate_series(1, $3::int) n
), 7000)
"""


async def run(bench: Bench) -> None:
    for subscribers in bench.clients(*SUBSCRIBERS):
        async with bench.place.database() as url, served_earmark(url) as served:
            connection = await connect(url)
            await _burst(bench, served, connection, subscribers)
            await connection.close()
    async with bench.place.database() as url, served_earmark(url) as served:
        connection = await connect(url)
        await _steady(bench, served, connection)
        await connection.close()


# -- a burst to everybody ----------------------------------------------------------------------------------------------


async def _burst(bench: Bench, served: Served, connection: Connection, subscribers: int) -> None:
    listeners = await _open(served.port, [ROOT_KEY] * subscribers)
    found: dict[str, list[tuple[float, float]]] = {SHARED: [], OWN: []}
    for repetition in range(bench.options.repetitions):
        for document, share in ((SHARED, 1), (OWN, 10)):
            events = max(2, MESSAGES // share // subscribers)
            name = f"{repetition}-{share}"
            await _subscribe(served, listeners, name, document)
            found[document].append(await _window(bench, served, connection, listeners, name, events))
            for listener in listeners:
                listener.complete(name)
            await _until_listening(served, 0)
    for listener in listeners:
        listener.close()
    ours, ours_us = (statistics.median(values) for values in zip(*found[SHARED], strict=True))
    theirs, theirs_us = (statistics.median(values) for values in zip(*found[OWN], strict=True))
    bench.report.note(
        f"fanout: {ours / theirs:.1f}x of one execution a subscriber at {subscribers:,} subscribers, goal {RATIO_GOAL:g}x: "
        f"{ours:,.0f} messages/s, goal {RATE_GOAL:,} ({ours_us:.0f} µs CPU each), against {theirs:,.0f} ({theirs_us:.0f} µs)"
    )


async def _window(
    bench: Bench, served: Served, connection: Connection, listeners: Sequence[Listener], name: str, events: int
) -> tuple[float, float]:
    """(messages a second, µs of the server's CPU a message) of one burst. Nobody may miss or double anything."""
    processors = bench.processors(served.process.pid)
    before = [listener.count for listener in listeners]
    wanted = events * len(listeners)
    cpu, began = processors.read(), time.perf_counter()
    await connection.execute(APPEND, name, "tenant", events)
    await _until(lambda: sum(listener.count for listener in listeners) - sum(before) >= wanted)
    took, used = time.perf_counter() - began, processors.read().python - cpu.python
    wrong = [listener for listener, count in zip(listeners, before, strict=True) if listener.count - count != events]
    bench.report.complain([f"fanout: {len(wrong)} subscribers did not get each event once"] if wrong else [])
    return wanted / took, used / wanted * 1e6


# -- a steady stream ---------------------------------------------------------------------------------------------------


async def _steady(bench: Bench, served: Served, connection: Connection) -> None:
    tenants = [f"tenant-{number}" for number in range(STEADY_TENANTS)]
    keys = [await _make_tenant(served.port, tenant) for tenant in tenants]
    listeners = await _open(served.port, [keys[number % STEADY_TENANTS] for number in range(STEADY_SUBSCRIBERS)])
    await _subscribe(served, listeners, "steady", OF_TENANT)
    for listener in listeners:
        listener.arrived = []
    appended: dict[str, list[float]] = {tenant: [] for tenant in tenants}
    began = time.perf_counter()
    for number in range(STEADY_RATE * STEADY_S):
        await asyncio.sleep(max(0.0, began + number / STEADY_RATE - time.perf_counter()))
        tenant = tenants[number % STEADY_TENANTS]
        appended[tenant].append(time.perf_counter())
        await connection.execute(APPEND, f"steady{number}", tenant, 1)
    each = {tenant: len(times) for tenant, times in appended.items()}
    wanted = sum(each[tenants[number % STEADY_TENANTS]] for number in range(STEADY_SUBSCRIBERS))
    await _until(lambda: sum(listener.count for listener in listeners) >= wanted)
    delays = [
        (arrived - at) * 1e3
        for number, listener in enumerate(listeners)
        for arrived, at in zip(listener.arrived or [], appended[tenants[number % STEADY_TENANTS]], strict=True)
    ]
    for listener in listeners:
        listener.close()
    p95 = statistics.quantiles(delays, n=PERCENTILES)[-1]
    bench.report.note(
        f"fanout: {STEADY_SUBSCRIBERS:,} subscribers of {STEADY_TENANTS} tenants at {STEADY_RATE} events/s: append to "
        f"socket p50 {statistics.median(delays):.0f} ms, p95 {p95:.0f} ms, goal {STEADY_GOAL_MS} ms"
    )


async def _make_tenant(port: int, tenant: str) -> str:
    """The secret of a key of a new tenant."""
    made: Any = None
    for mutation in (
        f'createTenant(input: {{tenantId: "{tenant}", name: "T"}}) {{ __typename }}',
        f'createApiKey(input: {{tenantId: "{tenant}", name: "k"}}) {{ ... on CreatedApiKey {{ secret }} }}',
    ):
        document = f"mutation {{ m: {mutation} }}"
        connection = await KeepAlive.open(port)
        status, answer = await connection.post("/graphql", msgspec.json.encode({"query": document}), key=ROOT_KEY)
        connection.close()
        assert status == 200, answer
        made = msgspec.json.decode(answer)["data"]["m"]
    secret: str = made["secret"]
    return secret


# -- sockets -----------------------------------------------------------------------------------------------------------


async def _open(port: int, keys: Sequence[str]) -> list[Listener]:
    """A few at a time: a server takes so many new connections at once and no more."""
    listeners: list[Listener] = []
    for start in range(0, len(keys), OPEN_AT_ONCE):
        page = keys[start : start + OPEN_AT_ONCE]
        listeners += await asyncio.gather(*(Listener.open(port, key) for key in page))
    return listeners


async def _subscribe(served: Served, listeners: Sequence[Listener], name: str, document: str) -> None:
    for listener in listeners:
        listener.subscribe(name, document, yes=True)
    await _until_listening(served, len(listeners))


async def _until_listening(served: Served, subscribers: int) -> None:
    """By what the server itself says of its open subscriptions."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        connection = await KeepAlive.open(served.port)
        _, text = await connection.get("/metrics")
        connection.close()
        if f"\nearmark_subscribers {float(subscribers)}" in text.decode():
            return
        await asyncio.sleep(POLL_S * 20)
    told = [line for line in text.decode().splitlines() if line.startswith("earmark_subscribers")]
    raise TimeoutError(f"the server has not come to {subscribers} subscribers: {told}")


async def _until(condition: Any) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("events did not arrive")
        await asyncio.sleep(POLL_S)
