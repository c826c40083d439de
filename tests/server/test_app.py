"""The application as it is put together: health, metrics, pages, origins, and ids that travel into events."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest

from server.asgi import create_app
from server.auth import secret_of
from server.settings import Settings
from tests.capacity_world import eventually
from tests.databases import Databases
from tests.server.conftest import ROOT_KEY
from tests.server.processes import graphql
from workers.authority import RootKeyError, ensure_root
from workers.runtime import Runtime
from workers.schedule import JOB_NAMES

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_a_node_is_ready_while_its_database_answers(
    client: httpx2.AsyncClient, node: Runtime, databases: Databases, database_url: str
) -> None:
    async def is_ready() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(is_ready)
    assert (await client.get("/readyz")).json() == {"ready": True, "problems": []}
    name = urlsplit(database_url).path.removeprefix("/")
    administrator = await asyncpg.connect(databases.dsn)
    try:
        await administrator.execute(f"alter database {name} allow_connections false")
        await administrator.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", name)
        lost = await client.get("/readyz")
        assert lost.status_code == 503
        assert "the database does not answer" in lost.json()["problems"]
        assert (await client.get("/healthz")).text == "ok", "a restart of this process would mend nothing"
        refused = await client.post(
            "/api/compute/reservationGrants/list", headers={"X-API-Key": ROOT_KEY}, content="{}"
        )
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "UNAVAILABLE"
    finally:
        await administrator.execute(f"alter database {name} allow_connections true")
        await administrator.close()
    await eventually(is_ready)
    assert node.listener.is_connected


async def test_metrics_are_prometheus_text(client: httpx2.AsyncClient) -> None:
    await client.get("/nowhere")
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    for name in ("earmark_http_requests_total", "earmark_decisions_total", "earmark_actors", "process_cpu_seconds"):
        assert name in response.text


async def test_what_is_nowhere_or_not_allowed_is_told_in_the_wires_form(client: httpx2.AsyncClient) -> None:
    nowhere = await client.get("/nowhere")
    assert (nowhere.status_code, nowhere.json()) == (404, {"error": {"code": "NOT_FOUND", "message": "Not Found"}})
    wrong = await client.delete("/readyz")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


async def test_the_ide_is_held_to_this_server_alone(client: httpx2.AsyncClient) -> None:
    page = await client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "http" not in policy
    for outside in ("src=", 'href="http', "@import", "//cdn", "https://"):
        assert outside not in page.text, outside


async def test_production_has_no_ide(node: Runtime, database_url: str) -> None:
    settings = Settings(data_dir=Path("/nonexistent"), environment="production")
    app = create_app(settings, database_url, runtime=node)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://earmark.test") as client,
    ):
        front = await client.get("/")
        assert (front.status_code, front.headers["location"]) == (307, "/openapi.json")


async def test_a_page_of_any_origin_may_ask_and_read_the_ids(client: httpx2.AsyncClient) -> None:
    asked = {"origin": "https://dashboard.example", "access-control-request-method": "POST"}
    allowed = {**asked, "access-control-request-headers": "authorization,content-type,traceparent"}
    preflight = await client.options("/graphql", headers=allowed)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in preflight.headers
    answer = await client.post("/graphql", json={"query": "{ viewer { tenant { id } } }"}, headers=asked)
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_a_requests_ids_travel_into_the_events_that_it_caused(client: httpx2.AsyncClient, node: Runtime) -> None:
    client.headers["x-api-key"] = ROOT_KEY
    account = await graphql(
        client,
        'mutation { answer: createProviderAccount(input: {name: "a", provider: "gcp", kind: "push"}) '
        "{ ... on ProviderAccount { id } } }",
    )
    account_id = account["answer"]["id"]
    given = {
        "accountId": account_id,
        "reservations": [{"reservationId": "r", "flavor": "f", "region": "x", "total": 3}],
    }
    await graphql(
        client,
        """mutation ($report: ReportReservationsInput!, $bind: BindReservationInput!) {
            reportReservations(input: $report) { __typename }
            createPool(input: {poolId: "p", name: "p"}) { __typename }
            offerPool(input: {poolId: "p", offeredTo: "*"}) { __typename }
            bindReservation(input: $bind) { __typename } }""",
        report=given,
        bind={"accountId": account_id, "reservationId": "r", "poolId": "p"},
    )
    now = node.clock.local_ms()
    made = await client.post(
        "/api/compute/reservationGrants/create",
        json={
            "tenantId": "root",
            "accountId": account_id,
            "reservationId": "r",
            "grantTenantId": "root",
            "slots": 1,
            "startsAt": now,
            "endsAt": now + 60_000,
            "idempotencyKey": "k",
        },
        headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"},
    )
    assert made.status_code == 200, made.text

    async def events() -> list[dict[str, str]]:
        answer = await graphql(client, "{ events { nodes { type requestId traceId } } }")
        nodes: list[dict[str, str]] = answer["events"]["nodes"]
        return nodes

    await eventually(events)
    request_id = made.headers["x-request-id"]
    assert {(event["requestId"], event["traceId"]) for event in await events()} == {(request_id, TRACE)}


async def test_every_job_can_be_run_once_on_a_node(node: Runtime) -> None:
    for job in JOB_NAMES:
        assert all(isinstance(count, int) for count in (await node.schedule.run_job(job)).counts.values()), job


async def test_what_keeps_a_node_from_starting_is_raised_and_leaves_nothing_open(
    node: Runtime, database_url: str
) -> None:
    app = create_app(Settings(root_tenant="another", data_dir=Path("/nonexistent")), database_url)
    with pytest.raises(RootKeyError, match="another is not the root tenant of this database"):
        async with app.router.lifespan_context(app):
            raise AssertionError("it must not start")


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ({"authorization": "Bearer one"}, "one"),
        ({"authorization": "bearer  one "}, "one"),
        ({"authorization": "Bearer one two"}, "one two"),
        ({"authorization": "Bearer one", "x-api-key": "two"}, "one"),
        ({"authorization": "Bearer ", "x-api-key": "two"}, "two"),
        ({"authorization": "Basic b25l", "x-api-key": "two"}, "two"),
        ({"authorization": "Basic b25l"}, None),
        ({"x-api-key": " two "}, "two"),
        ({"x-api-key": ""}, None),
        ({}, None),
    ],
)
def test_where_a_key_is_looked_for(headers: dict[str, str], secret: str | None) -> None:
    assert secret_of(headers) == secret


async def test_a_root_key_may_have_any_letters(client: httpx2.AsyncClient, node: Runtime) -> None:
    """Clients send a header's text in UTF-8, and a server reads it as latin-1."""
    key = "schlüssel-für-die-wurzel-ключ-корня-0123456789"
    await ensure_root(node.database, root_key=key)
    for name, value in (("x-api-key", key), ("authorization", f"Bearer {key}")):
        response = await client.post(
            "/graphql", json={"query": "{ viewer { tenant { id } } }"}, headers=_raw(name, value)
        )
        assert response.json()["data"]["viewer"]["tenant"]["id"] == "root"


def _raw(name: str, value: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode())]
