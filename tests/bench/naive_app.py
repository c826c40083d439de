"""The naive desk behind Starlette and uvicorn: `python -m tests.bench.naive_app URL PORT`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.bench.demand import GrantRequest
from tests.bench.naive import NaiveDesk, naive_pool
from tests.bench.serving import ROOT_KEY, serve
from workers.garbage import spare_what_stays

PATH: Final = "/api/compute/reservationGrants/create"


async def create(request: Request) -> Response:
    if request.headers.get("authorization") != f"Bearer {ROOT_KEY}":
        return _answer({"error": {"code": "UNAUTHENTICATED"}}, status=401)
    given = msgspec.json.decode(await request.body())
    wanted = GrantRequest(
        account_id=given["accountId"],
        reservation_id=given["reservationId"],
        grant_tenant_id=given["grantTenantId"],
        slots=given["slots"],
        starts_at=given["startsAt"],
        ends_at=given["endsAt"],
        idempotency_key=given["idempotencyKey"],
    )
    grant_id = await request.app.state.desk.create(wanted)
    if grant_id is None:
        return _answer({"error": {"code": "REFUSED"}}, status=409)
    return _answer({"grantId": grant_id, **given}, status=200)


async def ready(_request: Request) -> Response:
    return _answer({"ready": True}, status=200)


def _answer(value: Any, *, status: int) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def application(url: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with naive_pool(url, by_range=False) as pool:
            app.state.desk = NaiveDesk(pool, by_range=False)
            spare_what_stays()
            yield

    return Starlette(routes=[Route(PATH, create, methods=["POST"]), Route("/readyz", ready)], lifespan=lifespan)


if __name__ == "__main__":
    serve(application(sys.argv[1]), port=int(sys.argv[2]))
