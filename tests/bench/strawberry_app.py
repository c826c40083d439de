"""The product's node behind strawberry's own view, with strawberry's caches: `python -m tests.bench.strawberry_app URL PORT`.

Types, resolvers and desks are the product's; so what it takes more than the product is what executing operations takes.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.extensions import ParserCache, ValidationCache

from schema.context import Context, PerOperation
from schema.root import schema
from server.auth import caller_of, secret_of
from storage.database import Database
from tests.bench.serving import ROOT_KEY, serve
from workers.runtime import Runtime

schema.extensions = (PerOperation, ParserCache, ValidationCache)


class Endpoint(GraphQL[Context, None]):
    async def get_context(self, request: Request | WebSocket, response: Response | WebSocket) -> Context:
        runtime: Runtime = request.app.state.runtime
        secret = secret_of(request.headers)
        caller = await caller_of(runtime.authenticator, secret, request_id=None, trace_id=None, request=request)
        return Context(runtime=runtime, caller=caller)


async def ready(_request: Request) -> Response:
    return JSONResponse({"ready": True})


def application(url: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        database = await Database.open(url)
        try:
            runtime: Any = Runtime(database)
            app.state.runtime = runtime
            await runtime.open(root_key=ROOT_KEY)
            try:
                yield
            finally:
                await runtime.stop()
        finally:
            await database.close()

    return Starlette(routes=[Route("/graphql", Endpoint(schema)), Route("/readyz", ready)], lifespan=lifespan)


if __name__ == "__main__":
    serve(application(sys.argv[1]), port=int(sys.argv[2]))
