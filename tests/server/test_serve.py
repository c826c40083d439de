"""`earmark serve` on its embedded PostgreSQL: the first start and the second, how it stops, and what it survives."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from gql import Client
from gql import gql as parsed
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport

from server.process import CannotListen, listening_socket
from server.settings import Settings
from storage.embedded import EmbeddedPostgres
from tests.capacity_world import eventually
from tests.server.conftest import ROOT_KEY
from tests.server.processes import Serving, earmark, environment, graphql, serving, started
from workers.runtime import Runtime

SUBSCRIPTION = "subscription { grantEvents(all: true) { cursor type } }"
NODE = {"EARMARK_JOBS": "off"}


@pytest.mark.timeout(300)
async def test_the_first_start_the_second_and_a_crash_in_between(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One story, since a start is dear: root's key is told once, the data stays, the database is looked after."""
    place = ("--data-dir", str(data_dir))
    async with serving(*place, settings=NODE) as server:
        first_s = server.started_in_s
        secret = (await server.wait_for("emk_")).strip()
        assert "shown this once" in server.plain
        async with server.client(secret) as client:
            assert await _viewer(client) == "root"
            await _stops_with_a_cursor(server, secret)
    assert EmbeddedPostgres(data_dir / "postgres").pid is None, "it was stopped with its last user"

    async with serving(*place, settings=NODE) as server:
        second_s = server.started_in_s
        async with server.client(secret) as client:
            assert await _viewer(client) == "root", "the key of the first start is still there"
            await _heals(server, client, data_dir / "postgres")
        assert await server.stop(signal.SIGINT) == 0
        assert "emk_" not in server.plain + str(server.log)
    with capsys.disabled():
        print(f"\n    first start {first_s:.1f} s, second start {second_s:.1f} s", end=" ")


async def _viewer(client: Any) -> str:
    answer = await graphql(client, "{ viewer { tenant { id } } }")
    tenant_id: str = answer["viewer"]["tenant"]["id"]
    return tenant_id


async def _stops_with_a_cursor(server: Serving, secret: str) -> None:
    """SIGTERM: a subscriber is told where to resume before its socket is closed, and the process ends with 0."""
    transport = WebsocketsTransport(
        url=f"{server.address.replace('http', 'ws')}/graphql",
        init_payload={"apiKey": secret},
        subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL],
    )
    client = Client(transport=transport)
    async with client as session:
        events = session.subscribe(parsed(SUBSCRIPTION))
        first = asyncio.ensure_future(anext(events))
        async with server.client() as http:

            async def is_subscribed() -> bool:
                return "earmark_subscribers 1.0" in (await http.get("/metrics")).text

            await eventually(is_subscribed)
        stopping = asyncio.ensure_future(server.stop(signal.SIGTERM))
        with pytest.raises(TransportQueryError) as closed:
            await first
        assert closed.value.errors is not None
        extensions = closed.value.errors[0]["extensions"]
        assert (extensions["code"], bool(extensions["cursor"])) == ("SHUTTING_DOWN", True)
        assert await stopping == 0


async def _heals(server: Serving, client: Any, home: Path) -> None:
    """kill -9 of PostgreSQL: the node starts it again by itself, and is ready without a restart."""

    async def is_ready() -> bool:
        return bool((await client.get("/readyz")).status_code == 200)

    await eventually(is_ready)
    postgres = EmbeddedPostgres(home)
    before = postgres.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)

    async def is_back() -> bool:
        return postgres.pid not in (None, before) and await is_ready()

    await eventually(is_back, timeout_ms=60_000)
    assert await _viewer(client) == "root"
    assert [line["message"] for line in server.log if line["level"] == "warning"].count(
        "the embedded PostgreSQL is back"
    ) == 1


async def test_a_request_under_way_is_answered_before_the_server_stops(database_url: str) -> None:
    settings = {**NODE, "EARMARK_DATABASE_URL": database_url, "EARMARK_ROOT_KEY": ROOT_KEY}
    async with serving(settings=settings) as server, server.client(ROOT_KEY) as client:
        await graphql(client, 'mutation { createTenant(input: {tenantId: "t", name: "T"}) { __typename } }')
        blocker = await asyncpg.connect(database_url)
        try:
            async with blocker.transaction():
                await blocker.execute("select 1 from tenant where tenant_id = 't' for update")
                document = 'mutation { createProject(input: {tenantId: "t", name: "p"}) { __typename } }'
                asked = asyncio.ensure_future(graphql(client, document))
                await eventually(lambda: _somebody_waits(blocker))
                stopping = asyncio.ensure_future(server.stop(signal.SIGTERM))
                await server.logged("stopping")
                assert not asked.done()
            assert (await asked)["createProject"] == {"__typename": "Project"}
            assert await stopping == 0
        finally:
            await blocker.close()


async def _somebody_waits(connection: Any) -> bool:
    return bool(
        await connection.fetchval(
            "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"
        )
    )


@pytest.mark.timeout(300)
async def test_two_nodes_share_one_data_directory(data_dir: Path) -> None:
    place = ("--data-dir", str(data_dir))
    settings = {**NODE, "EARMARK_ROOT_KEY": ROOT_KEY}
    async with (
        serving(*place, settings=settings) as first,
        serving(*place, settings=settings) as second,
        second.client(ROOT_KEY) as client,
    ):
        assert await _viewer(client) == "root"
        assert await first.stop(signal.SIGTERM) == 0
        assert await _viewer(client) == "root", "PostgreSQL stays for the one that is left"
        assert await second.stop(signal.SIGTERM) == 0
    assert EmbeddedPostgres(data_dir / "postgres").pid is None


async def test_a_taken_port_is_told_at_once(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = await earmark("serve", "--port", port, "--data-dir", str(data_dir))
    assert ended.code == 1
    assert ended.err.startswith(f"earmark: cannot listen on 127.0.0.1, port {port}: Address already in use; ")
    assert not (data_dir / "postgres").exists(), "nothing was begun"


def test_a_name_of_this_host_is_listened_on_where_everybody_looks() -> None:
    with listening_socket(Settings(host="localhost", port=0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with pytest.raises(CannotListen, match=r"cannot listen on no-such-host\.invalid, port 1: "):
        listening_socket(Settings(host="no-such-host.invalid", port=1))


async def test_another_root_tenant_is_a_mistake_in_the_settings(node: Runtime) -> None:
    settings = {**NODE, "EARMARK_DATABASE_URL": node.database.url, "EARMARK_ROOT_TENANT": "other"}
    ended = await earmark("serve", "--port", "0", settings=settings)
    told = "tenant other is not the root tenant of this database: its root tenant is root"
    assert (ended.code, ended.err) == (1, f"earmark: {told}\n")


async def test_a_signal_during_the_start_leaves_no_postgresql_behind(data_dir: Path) -> None:
    async with started("serve", "--port", "0", "--data-dir", str(data_dir), settings=NODE) as server:
        await server.wait_for("migrated")
        assert await server.stop(signal.SIGTERM) == 130
        assert "Traceback" not in server.plain + str(server.log)
    assert EmbeddedPostgres(data_dir / "postgres").pid is None


def test_the_environment_of_these_tests_has_no_settings() -> None:
    assert not [name for name in environment() if name.startswith("EARMARK_")]
