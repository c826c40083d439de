"""createGrant over GraphQL: `earmark serve`, against strawberry with its caches, and beside our own REST.

All three do the same work below the edge, on databases of their own. The goal is held against strawberry; against REST
GraphQL should have at least 0.7.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import msgspec

from tests.bench.bench import Bench
from tests.bench.demand import GrantRequest
from tests.bench.http_edge import EarmarkRest, body_of, open_variant
from tests.bench.serving import ROOT_KEY, served_earmark, served_strawberry

GOALS: Final = {50: 7.0, 200: 7.0}
DOCUMENT: Final = """mutation Create($input: CreateGrantInput!) { createGrant(input: $input) { __typename
  ... on Grant { id tenantId accountId reservationId poolId slots startsAt endsAt state createdAt version }
  ... on CapacityUnavailable { total granted } ... on InvalidInput { field reason } ... on Refusal { code message } } }"""


async def run(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        ours = await open_variant(bench, stack, EarmarkGraphQL, served_earmark)
        theirs = await open_variant(bench, stack, StrawberryGraphQL, served_strawberry)
        rest = await open_variant(bench, stack, EarmarkRest, served_earmark)
        for variant in (ours, theirs, rest):
            await variant.furnish()
        for clients in bench.clients(1, 10, 50, 200):
            variants = [ours, theirs, rest]
            await bench.compare("graphql: createGrant", variants, clients=clients, goal=GOALS.get(clients))


class EarmarkGraphQL(EarmarkRest):
    """With as many fields selected as REST answers with."""

    name = "earmark GraphQL"

    async def _ask(self, client: int, request: GrantRequest) -> bool:
        connection = await self.connection(client)
        given = {name: value for name, value in body_of(request).items() if value is not None}
        body = msgspec.json.encode({"query": DOCUMENT, "variables": {"input": given}})
        status, answer = await connection.post("/graphql", body, key=ROOT_KEY)
        told = msgspec.json.decode(answer) if status == 200 else {}
        shown = (told.get("data") or {}).get("createGrant")
        if not shown or told.get("errors"):
            raise AssertionError(f"status {status}: {answer.decode()[:200]}")
        if shown["__typename"] == "Grant":
            self._demand.made(request, shown["id"])
            return True
        assert shown["code"] == "CAPACITY_UNAVAILABLE", shown
        self._demand.refused(request)
        return False


class StrawberryGraphQL(EarmarkGraphQL):
    name = "strawberry with caches"
