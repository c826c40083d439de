"""What every request passes: its trace and ids, the log line, the counters, and the mask over what went wrong."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from server.logs import REQUEST
from server.middleware import RequestScope, trace_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


async def ids(request: Request) -> Response:
    assert REQUEST.get() == {name: request.scope["state"][name] for name in ("request_id", "trace_id")}
    return PlainTextResponse(f"{request.scope['state']['request_id']} {request.scope['state']['trace_id']}")


async def failing(_request: Request) -> Response:
    raise RuntimeError("a secret of ours")


async def failing_late(_request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("a secret of ours")

    return StreamingResponse(pieces())


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    handlers = {"/ids/{name}": ids, "/failing": failing, "/failing-late": failing_late, "/healthz": ids}
    routes = [Route(path, handler, methods=["GET", "POST"]) for path, handler in handlers.items()]
    app = Starlette(routes=routes, middleware=[Middleware(RequestScope)])
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as opened:
        yield opened


async def test_a_callers_trace_goes_on_and_gets_a_new_parent(client: httpx2.AsyncClient) -> None:
    for flags in ("00", "01"):
        response = await client.get("/ids/x", headers={"traceparent": f"00-{TRACE}-{PARENT}-{flags}"})
        version, trace, parent, answered = response.headers["traceparent"].split("-")
        assert (version, trace, answered) == ("00", TRACE, flags)
        assert parent != PARENT
        assert response.text == f"{response.headers['x-request-id']} {TRACE}"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE[:-1]}-{PARENT}-01",
    ],
)
def test_a_malformed_trace_is_passed_over_for_a_new_one(header: str) -> None:
    trace = trace_of(header)
    assert trace.trace_id != TRACE
    assert len(trace.trace_id) == 32
    assert trace_of(header) != trace


def test_a_later_version_of_the_header_is_read_as_far_as_we_know_it() -> None:
    assert trace_of(f"cc-{TRACE}-{PARENT}-01-what-comes-next").trace_id == TRACE


async def test_every_request_has_an_id_of_its_own(client: httpx2.AsyncClient) -> None:
    first, second = [(await client.get("/ids/x")).headers["x-request-id"] for _ in range(2)]
    assert first != second
    assert first.startswith("req_")


async def test_a_fault_of_ours_is_masked_and_logged_under_its_request(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    response = await client.get("/failing")
    assert response.status_code == 500
    error = response.json()["error"]
    assert error["code"] == "INTERNAL"
    assert error["details"] == {"requestId": response.headers["x-request-id"]}
    assert "secret" not in response.text
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "a secret of ours" in str(record.exc_info)


async def test_a_fault_after_the_beginning_of_an_answer_cuts_it_short(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    response = await client.get("/failing-late")
    assert response.text == "half"
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == ["a request failed"]


async def test_a_client_that_leaves_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "earmark.http")

    async def left(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ClientDisconnect

    before = counted("GET", "unknown", "499")
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    await RequestScope(left)(scope, None, None)  # type: ignore[arg-type]
    assert counted("GET", "unknown", "499") == before + 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_one_line_a_request_and_none_for_probes(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "earmark.http")
    await client.post("/ids/one")
    await client.get("/healthz")
    (line,) = [record.__dict__ for record in caplog.records if record.name == "earmark.http"]
    assert (line["message"], line["method"], line["path"], line["status"]) == ("served", "POST", "/ids/one", 200)
    assert line["milliseconds"] >= 0


async def test_counters_go_by_route_and_clients_cannot_make_new_ones(client: httpx2.AsyncClient) -> None:
    names = ("/ids/{name}", "unknown")
    before = {name: counted("GET", name, status) for name, status in zip(names, ("200", "404"), strict=True)}
    for path in ("/ids/one", "/ids/two", "/nowhere/1", "/nowhere/2", "/nowhere/3"):
        await client.get(path)
    assert counted("GET", "/ids/{name}", "200") == before["/ids/{name}"] + 2
    assert counted("GET", "unknown", "404") == before["unknown"] + 3
    await client.request("BREW", "/ids/one")
    assert counted("other", "/ids/{name}", "405") >= 1
    assert counted("BREW", "/ids/{name}", "405") == 0


def counted(method: str, route: str, status: str) -> float:
    labels = {"method": method, "route": route, "status": status}
    return REGISTRY.get_sample_value("earmark_http_requests_total", labels) or 0.0


async def test_lifespan_messages_pass_through() -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope)

    scope = {"type": "lifespan"}
    await RequestScope(app)(scope, None, None)  # type: ignore[arg-type]
    assert json.dumps(seen) == '[{"type": "lifespan"}]'
