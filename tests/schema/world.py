"""A node with a platform on it, built and asked through the GraphQL schema alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from strawberry.types import ExecutionResult

from domain.webhooks.targets import PERMISSIVE
from schema.context import Context
from schema.root import schema
from storage.database import Database
from workers.clock import ManualClock
from workers.request import Caller
from workers.runtime import Runtime, RuntimeOptions

BASE = 1_800_000_000_000
"""2027-01-15T08:00:00Z, exactly on an hour."""
HOUR = 3_600_000
MINUTE = 60_000
SECRET_KEY = b"the secret key of a test world, which is long enough"
ROOT_KEY = "the-root-key-of-a-test-world-0123456789"

REFUSED = """
    ... on Refusal { __typename code message }
    ... on InvalidInput { field reason }
    ... on InvalidState { grantIds refusedState: currentState }
    ... on Conflict { conflictReason: reason conflictGrantId: grantId conflictVersion: currentVersion }
"""
CREATE_GRANT = f"""
mutation CreateGrant($input: CreateGrantInput!) {{
  createGrant(input: $input) {{
    ... on Grant {{ id state tenantId projectId accountId reservationId poolId region provider slots startsAt endsAt }}
    ... on CapacityUnavailable {{ total granted earliestFit {{ startsAt endsAt latestStartAt }} }}
    {REFUSED}
  }}
}}
"""


@dataclass
class World:
    runtime: Runtime
    clock: ManualClock
    root: Caller
    account_id: str = ""
    callers: dict[str, Caller] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    async def ask(self, document: str, caller: Caller | None = None, /, **variables: Any) -> ExecutionResult:
        """What the schema answers, errors and all."""
        context = Context(runtime=self.runtime, caller=caller or self.root)
        return await schema.execute(document, variable_values=variables, context_value=context)

    async def data(self, document: str, caller: Caller | None = None, /, **variables: Any) -> dict[str, Any]:
        """The data of an answer that must have no errors."""
        result = await self.ask(document, caller, **variables)
        assert result.errors is None, result.errors
        assert result.data is not None
        return result.data

    async def mutate(
        self, name: str, wanted: Mapping[str, Any], selection: str = "", *, caller: Caller | None = None
    ) -> Any:
        """The result of one mutation: the object, or the refusal with its details."""
        kind = (
            "InstanceInput" if name in ("startInstance", "stopInstance", "deleteInstance") else _capital(name) + "Input"
        )
        document = f"mutation ($input: {kind}!) {{ {name}(input: $input) {{ __typename {selection} {REFUSED} }} }}"
        return (await self.data(document, caller, input=dict(wanted)))[name]

    async def stream(self, document: str, caller: Caller | None = None, /, **variables: Any) -> Any:
        """The results of a subscription, one by one."""
        context = Context(runtime=self.runtime, caller=caller or self.root)
        return await schema.subscribe(document, variable_values=variables, context_value=context)

    async def caller_of(self, secret: str) -> Caller:
        principal = await self.runtime.authenticator.authenticate(secret)
        assert principal is not None
        return Caller(principal=principal, request_id=f"req_{principal.tenant_id}")

    async def add_tenant(self, tenant_id: str) -> Caller:
        """A tenant with one project and one key."""
        await self.mutate("createTenant", {"tenantId": tenant_id, "name": tenant_id.title()})
        project = await self.mutate("createProject", {"tenantId": tenant_id, "name": "main"}, "... on Project { id }")
        made = await self.mutate(
            "createApiKey", {"tenantId": tenant_id, "name": "k"}, "... on CreatedApiKey { secret }"
        )
        self.projects[tenant_id] = project["id"]
        self.secrets[tenant_id] = made["secret"]
        self.callers[tenant_id] = await self.caller_of(made["secret"])
        return self.callers[tenant_id]

    async def add_reservation(self, reservation_id: str, *, total: int, flavor: str = "a3") -> str:
        """The id of a capacity reservation that is bound to the pool."""
        reported = [{"reservationId": reservation_id, "flavor": flavor, "region": "eu-1", "total": total}]
        place = {"accountId": self.account_id, "reservationId": reservation_id}
        made = await self.mutate(
            "reportReservations", {"accountId": self.account_id, "complete": True, "reservations": reported}
        )
        assert made["__typename"] == "ReportedReservations"
        bound = await self.mutate("bindReservation", {**place, "poolId": "pool"}, "... on CapacityReservation { id }")
        return bound["id"]

    def grant_input(self, **changes: Any) -> dict[str, Any]:
        """An acceptable input of createGrant: three slots for tenant a, from now on, for a day."""
        return {
            "tenantId": "root",
            "accountId": self.account_id,
            "reservationId": "res",
            "grantTenantId": "a",
            "slots": 3,
            "startsAt": self.clock.now,
            "endsAt": self.clock.now + 24 * HOUR,
            "idempotencyKey": f"k{self.runtime.ids.new('k')}",
            **changes,
        }

    async def create_grant(self, *, caller: Caller | None = None, **changes: Any) -> dict[str, Any]:
        return (await self.data(CREATE_GRANT, caller, input=self.grant_input(**changes)))["createGrant"]

    async def run_instance(self, tenant_id: str, name: str = "one") -> dict[str, Any]:
        wanted = {"projectId": self.projects[tenant_id], "flavor": "a3", "name": name}
        selection = "... on Instance { id grantId runState }"
        return await self.mutate("createInstance", wanted, selection, caller=self.callers[tenant_id])


async def until(condition: Callable[[], object], *, within_s: float = 60.0) -> None:
    """Return once the condition holds; it is about what happens elsewhere in this event loop."""
    for _ in range(int(within_s / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise TimeoutError("it never came to be")


def _capital(name: str) -> str:
    return name[0].upper() + name[1:]


@asynccontextmanager
async def world_on(url: str, *, now: int = BASE) -> AsyncIterator[World]:
    """Root with an account of the kind push, a pool offered to everybody, tenants a and b, and 10 slots."""
    clock = ManualClock(now)
    database = await Database.open(url)
    options = RuntimeOptions(runs_jobs=False, secret_key=SECRET_KEY, webhook_security=PERMISSIVE)
    runtime = Runtime(database, clock=clock, options=options)
    try:
        await runtime.open(root_key=ROOT_KEY)
        try:
            principal = await runtime.authenticator.authenticate(ROOT_KEY)
            assert principal is not None
            world = World(runtime, clock, Caller(principal=principal, request_id="req_root", trace_id="trace"))
            await _furnish(world)
            yield world
        finally:
            await runtime.stop()
    finally:
        await database.close()


async def _furnish(world: World) -> None:
    account = await world.mutate(
        "createProviderAccount", {"name": "main", "provider": "gcp", "kind": "push"}, "... on ProviderAccount { id }"
    )
    world.account_id = account["id"]
    await world.mutate("createPool", {"poolId": "pool", "name": "The pool"})
    await world.mutate("offerPool", {"poolId": "pool", "offeredTo": "*"})
    await world.add_tenant("a")
    await world.add_tenant("b")
    await world.add_reservation("res", total=10)
