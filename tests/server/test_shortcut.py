"""The short way to plain routes: it leads where the long way leads, or is not taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from server.shortcut import Shortcut


class Named:
    """Says which route was taken, and what was in its path."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = [self._name, scope["path_params"], scope["route"].path, scope["endpoint"] is self]
        await JSONResponse(told)(scope, receive, send)


async def by_function(request: Request) -> Response:
    return JSONResponse(["function", request.path_params])


ROUTES: list[BaseRoute] = [
    Route("/plain", Named("plain"), methods=["POST"]),
    Route("/function", by_function, methods=["POST"]),
    Route("/v1/things/special", Named("special"), methods=["POST"]),
    Route("/v1/things/{thing}", Named("one"), methods=["POST"]),
    Route("/v1/things/late", Named("never"), methods=["POST"]),
    Route("/v1/things/{thing}/parts", by_function, methods=["POST"]),
    Route("/v1/things/{thing}/{part}", Named("part"), methods=["GET"]),
    Route("/v1/{rest:path}", Named("rest"), methods=["POST"]),
    Route("/v1/after/all", Named("never"), methods=["POST"]),
]
CROSS_ORIGIN = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["POST"])


@pytest.fixture
async def clients() -> AsyncIterator[list[httpx2.AsyncClient]]:
    """On the long way only, and with the short one."""
    ways = ([CROSS_ORIGIN], [Middleware(Shortcut, routes=ROUTES), CROSS_ORIGIN])
    apps = [Starlette(routes=ROUTES, middleware=way) for way in ways]
    opened = [
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://earmark.test") for app in apps
    ]
    yield opened
    for client in opened:
        await client.aclose()


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
@pytest.mark.parametrize("headers", [{}, {"origin": "https://page.test", "access-control-request-method": "POST"}])
@pytest.mark.parametrize(
    "path",
    [
        "/plain",
        "/plain/",
        "/function",
        "/v1/things/special",
        "/v1/things/late",
        "/v1/things/x%2Fy",
        "/v1/things/x/parts",
        "/v1/things/x/y",
        "/v1/after/all",
        "/v1",
        "/nowhere",
    ],
)
async def test_the_short_way_leads_where_the_long_one_does(
    clients: list[httpx2.AsyncClient], path: str, method: str, headers: dict[str, str]
) -> None:
    answers: list[Any] = [await client.request(method, path, headers=headers) for client in clients]
    long, short = ((answer.status_code, answer.headers, answer.content) for answer in answers)
    assert short == long
