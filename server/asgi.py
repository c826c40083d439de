"""The application: routes, layers, and the life of the node inside one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from server import dashboard
from server.graphql import GraphQLEndpoint
from server.middleware import RequestScope
from server.options import options_of
from server.rest import grants, openapi
from server.rest.cycles import routes as cycles
from server.rest.cycles.throttle import PublicLimit
from server.rest.wire import answer, failure
from server.settings import Settings
from server.shortcut import Shortcut
from storage.database import Database
from workers.clock import Clock
from workers.runtime import Runtime

log = logging.getLogger("earmark.server")

IDE: Final = Path(__file__).parent / "static" / "ide.html"
IDE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page is one file: a browser that holds it to this sends a key to nobody else."""
READY_WITHIN_S: Final = 2.0
"""A database that takes longer to say one is not fit for traffic."""


def create_app(
    settings: Settings,
    database_url: str,
    *,
    clock: Clock | None = None,
    runtime: Runtime | None = None,
    on_open: Callable[[Runtime], Awaitable[None]] | None = None,
) -> Starlette:
    """The ASGI application on a migrated database. With `runtime` it serves that one, which the caller stops.

    `on_open` is awaited with the started node before the first request. The lifespan raises what keeps the node from
    starting, such as `workers.authority.RootKeyError`.
    """
    endpoint = GraphQLEndpoint(body_max=settings.graphql_body_max, cost_max=settings.graphql_cost_max)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if runtime is not None:
            app.state.runtime = runtime
            yield
            return
        database = await Database.open(database_url)
        try:
            node = Runtime(database, options=options_of(settings), clock=clock)
            app.state.runtime = node
            app.state.made_root_key = await node.open(root_key=settings.root_key, root_tenant=settings.root_tenant)
            try:
                if on_open is not None:
                    await on_open(node)
                yield
            finally:
                await node.stop()
        finally:
            await database.close()

    routes = _routes(endpoint, settings)
    app = Starlette(
        routes=routes,
        middleware=[Middleware(RequestScope), Middleware(Shortcut, routes=routes), _cross_origin()],
        exception_handlers={HTTPException: _http_failure},
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.made_root_key = None
    app.state.public_limit = PublicLimit()
    return app


def _routes(endpoint: GraphQLEndpoint, settings: Settings) -> list[BaseRoute]:
    front = Route("/", _ide if settings.is_development else _front)
    return [
        front,
        Route("/graphql", endpoint),  # it says itself which methods it takes, in its own form
        WebSocketRoute("/graphql", endpoint),
        *grants.ROUTES,
        *cycles.ROUTES,
        *dashboard.ROUTES,
        Route("/openapi.json", _openapi),
        Route("/healthz", _healthy),
        Route("/readyz", _ready),
        Route("/metrics", _metrics),
    ]


def _cross_origin() -> Middleware:
    """A page of any origin may ask: keys are never sent by a browser on its own, as cookies are."""
    ours = ["x-request-id", "traceparent", "retry-after"]
    cycles_own = ["x-cycles-trace-id", "x-cycles-tenant", "x-ratelimit-remaining", "x-ratelimit-reset"]
    return Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=["*"],
        expose_headers=[*ours, *cycles_own],
    )


async def _ide(_request: Request) -> Response:
    headers = {"content-security-policy": IDE_POLICY, "referrer-policy": "no-referrer", "cache-control": "no-cache"}
    return HTMLResponse(IDE.read_text(), headers=headers)


async def _front(_request: Request) -> Response:
    return RedirectResponse("/openapi.json")


async def _openapi(_request: Request) -> Response:
    return answer(openapi.document(version("earmark")))


async def _healthy(_request: Request) -> Response:
    """The process lives: whether it should be restarted, not whether it should get traffic."""
    return PlainTextResponse("ok")


async def _ready(request: Request) -> Response:
    """The database answers, and hints of other nodes are heard."""
    runtime: Runtime = request.app.state.runtime
    problems = []
    try:
        async with asyncio.timeout(READY_WITHIN_S), runtime.database.acquire() as connection:
            await connection.fetchval("select 1")
    except Exception as error:  # noqa: BLE001 - whatever it is, this node is not ready
        log.warning("the database does not answer", extra={"error": repr(error)})
        problems.append("the database does not answer")
    if not runtime.listener.is_connected:
        problems.append("the listening connection is not up")
    return answer({"ready": not problems, "problems": problems}, status=503 if problems else 200)


async def _metrics(_request: Request) -> Response:
    return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


async def _http_failure(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(error.status_code, "HTTP_ERROR")
    return failure(error.status_code, code, error.detail, headers=dict(error.headers or {}))
