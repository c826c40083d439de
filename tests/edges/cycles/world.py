"""The Cycles wire on a database of its own, with a clock that stands still, and a tenant with a key and budgets.

Every answer is held against the published documents where there are any, and against what holds for all of them: the
headers, the error's own ids, and that nothing is null.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.applications import Starlette

from domain.authority import EVERYTHING, Principal
from domain.outcomes import Accepted
from domain.webhooks.targets import PERMISSIVE
from server.asgi import create_app
from server.settings import Settings
from tests.edges.cycles.contract import judge
from workers.authority import ensure_root
from workers.clock import ManualClock
from workers.request import Caller
from workers.runtime import Runtime, RuntimeOptions, running

B: Final = 1_800_000_000_000
"""2027-01-15T08:00:00Z."""
ROOT_KEY: Final = "root-key-of-the-cycles-wire-tests-0123456789"
SECRET_KEY: Final = b"the secret key of the tests of this wire"
ACME: Final = "acme"
OTHER: Final = "other-corp"
TENANT: Final = f"tenant:{ACME}"
BOT: Final = f"{TENANT}/agent:bot"
TOKENS: Final = "TOKENS"
USD: Final = "USD_MICROCENTS"
ADMIN: Final = "admin"
"""The name of the operator's key."""
OPERATOR: Final = Caller(
    principal=Principal(key_id="key_tests", tenant_id="root", is_root=True, permissions=frozenset({EVERYTHING}))
)
"""Who asks a desk directly, for what this wire does not have."""

POLL_S: Final = 0.01
TRIES_MAX: Final = 1_000

Json = dict[str, Any]

_FREE: Final = frozenset({"metadata", "committed_metadata", "dimensions", "details", "custom"})
"""Objects that hold what a client put there."""


def tokens(amount: int) -> Json:
    return {"unit": TOKENS, "amount": amount}


def usd(amount: int) -> Json:
    return {"unit": USD, "amount": amount}


@dataclass
class World:
    app: Starlette
    client: httpx2.AsyncClient
    node: Runtime
    clock: ManualClock
    secrets: dict[str, str] = field(default_factory=dict)
    """Name to API key: a tenant's first one is called like the tenant."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def key(self) -> str:
        """An idempotency key that nobody has used."""
        return f"key-{next(self._numbers)}"

    # -- asking --------------------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str | None = ACME,
        headers: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> httpx2.Response:
        """One request with somebody's key. A trailing underscore in a parameter's name is dropped (`from_`)."""
        sent = {**self.credentials(by), **(headers or {})}
        named = {name.removesuffix("_"): value for name, value in params.items()}
        response = await self.client.request(method, path, json=body, headers=sent, params=named)
        check_answer(response)
        return response

    def credentials(self, by: str | None) -> dict[str, str]:
        if by is None:
            return {}
        name = "X-Admin-API-Key" if by == ADMIN else "X-Cycles-API-Key"
        return {name: self.secrets.get(by, by)}

    async def get(self, path: str, **given: Any) -> httpx2.Response:
        return await self.ask("GET", path, **given)

    async def post(self, path: str, body: Any, **given: Any) -> httpx2.Response:
        return await self.ask("POST", path, body, **given)

    def request(self, amount: Any = 1, *, what: str = "estimate", **changes: Any) -> Json:
        """An acceptable body of a reserve, decide or event. What is changed to `...` is left out."""
        given = {
            "idempotency_key": self.key(),
            "subject": {"tenant": ACME},
            "action": {"kind": "llm.completion", "name": "model"},
            what: tokens(amount) if isinstance(amount, int) else amount,
            **changes,
        }
        return {name: value for name, value in given.items() if value is not ...}

    async def reserve(self, amount: Any = 1, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        return await self.post("/v1/reservations", self.request(amount, **changes), by=by)

    async def held(self, amount: Any = 1, **changes: Any) -> str:
        """The id of a reservation that must be accepted."""
        reservation_id: str = ok(await self.reserve(amount, **changes))["reservation_id"]
        return reservation_id

    async def decide(self, amount: Any = 1, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        return await self.post("/v1/decide", self.request(amount, **changes), by=by)

    async def debit(self, amount: Any = 1, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        return await self.post("/v1/events", self.request(amount, what="actual", **changes), by=by)

    async def commit(self, reservation_id: str, amount: Any, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        actual = tokens(amount) if isinstance(amount, int) else amount
        body = {"idempotency_key": self.key(), "actual": actual, **changes}
        return await self.post(f"/v1/reservations/{reservation_id}/commit", body, by=by)

    async def release(self, reservation_id: str, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        body = {"idempotency_key": self.key(), **changes}
        return await self.post(f"/v1/reservations/{reservation_id}/release", body, by=by)

    async def extend(self, reservation_id: str, by_ms: Any, *, by: str = ACME, **changes: Any) -> httpx2.Response:
        body = {"idempotency_key": self.key(), "extend_by_ms": by_ms, **changes}
        return await self.post(f"/v1/reservations/{reservation_id}/extend", body, by=by)

    async def until(self, path: str, condition: Callable[[httpx2.Response], object], **given: Any) -> httpx2.Response:
        """The answer for which a condition holds, once it does: about what the node does in its own time."""
        for _ in range(TRIES_MAX):
            answer = await self.get(path, **given)
            if condition(answer):
                return answer
            await asyncio.sleep(POLL_S)
        raise TimeoutError(f"{path} never came to be so: {answer.text}")

    # -- looking -------------------------------------------------------------------------------------------------

    async def ledger(self, scope: str = TENANT, unit: str = TOKENS) -> Json:
        """A budget as an operator sees it, amounts as plain numbers; checks that it does not contradict itself (I1)."""
        shown = ok(await self.get("/v1/admin/budgets/lookup", by=ADMIN, scope=scope, unit=unit))
        flat = {name: value["amount"] if isinstance(value, dict) else value for name, value in shown.items()}
        assert flat["remaining"] == flat["allocated"] - flat["spent"] - flat["reserved"] - flat["debt"]
        return flat

    async def numbers(self, scope: str = TENANT, *names: str, unit: str = TOKENS) -> tuple[Any, ...]:
        """Some of a budget's numbers."""
        ledger = await self.ledger(scope, unit)
        return tuple(ledger[name] for name in names)

    async def events_told(self) -> int:
        """How many events there are, handed over or not."""
        async with self.node.database.acquire() as connection:
            number: int = await connection.fetchval(
                "select (select count(*) from budget_outbox) + (select count(*) from event where tenant_id <> '*')"
            )
        return number

    # -- furnishing ----------------------------------------------------------------------------------------------

    async def budget(self, scope: str, allocated: Any, **changes: Any) -> Json:
        amount = tokens(allocated) if isinstance(allocated, int) else allocated
        overdraft = changes.pop("overdraft", None)
        if overdraft is not None:
            changes["overdraft_limit"] = {"unit": amount["unit"], "amount": overdraft}
        tenant_id = scope.partition("/")[0].removeprefix("tenant:")
        body = {"tenant_id": tenant_id, "scope": scope, "unit": amount["unit"], "allocated": amount, **changes}
        return ok(await self.post("/v1/admin/budgets", body, by=ADMIN), 201)

    async def fund(self, operation: str, amount: int, *, scope: str = TENANT, **changes: Any) -> httpx2.Response:
        body = {"operation": operation, "amount": tokens(amount), "idempotency_key": self.key(), **changes}
        tenant_id = scope.partition("/")[0].removeprefix("tenant:")
        return await self.post("/v1/admin/budgets/fund", body, by=ADMIN, scope=scope, unit=TOKENS, tenant_id=tenant_id)

    async def add_tenant(self, tenant_id: str, **changes: Any) -> None:
        body = {"tenant_id": tenant_id, "name": tenant_id, **changes}
        ok(await self.post("/v1/admin/tenants", body, by=ADMIN), 201)
        await self.add_key(tenant_id, tenant_id)

    async def add_key(self, name: str, tenant_id: str = ACME, **changes: Any) -> Json:
        body = {"tenant_id": tenant_id, "name": name, **changes}
        made = ok(await self.post("/v1/admin/api-keys", body, by=ADMIN), 201)
        self.secrets[name] = made["key_secret"]
        return made

    async def add_operator(self, name: str, permissions: list[str]) -> None:
        """A key of the root tenant, which this wire cannot make."""
        made = await self.node.keys.create_api_key(OPERATOR, tenant_id="root", name=name, permissions=permissions)
        assert isinstance(made, Accepted), made
        assert made.answer.secret is not None
        self.secrets[name] = made.answer.secret

    async def set_tenant(self, tenant_id: str = ACME, **changes: Any) -> Json:
        return ok(await self.ask("PATCH", f"/v1/admin/tenants/{tenant_id}", changes, by=ADMIN))


def ok(response: httpx2.Response, status: int = 200) -> Json:
    assert response.status_code == status, response.text
    body: Json = response.json()
    return body


def refused(response: httpx2.Response) -> tuple[int, str]:
    """(status, error) of an answer that must be an error."""
    assert response.status_code >= 400, response.text
    return response.status_code, response.json()["error"]


def check_answer(response: httpx2.Response, *, judged: bool = True) -> None:
    """What holds for every answer of this wire. `judged`: the published documents have the last word."""
    if response.status_code != 204:
        assert response.headers["content-type"] == "application/json"
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["x-cycles-trace-id"])
    assert response.headers["x-request-id"]
    assert len(response.headers.get_list("x-request-id")) == 1
    for name in ("x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"):
        assert response.headers.get(name, "0").isdecimal()
    if response.status_code == 204:
        assert not response.content
        return
    body = response.json()
    assert not list(_nulls(body)), response.text
    if response.status_code >= 400:
        assert body["request_id"] == response.headers["x-request-id"]
        assert body["trace_id"] == response.headers["x-cycles-trace-id"]
    if judged:
        judge(response)


def _nulls(value: Any) -> Any:
    if value is None:
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _FREE:
                yield from _nulls(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nulls(inner)


@asynccontextmanager
async def world_on(url: str, **options: Any) -> AsyncIterator[World]:
    """The wire at B, with nothing but the operator's key. `options`: of the node."""
    clock = ManualClock(B)
    given = {"runs_jobs": False, "secret_key": SECRET_KEY, "webhook_security": PERMISSIVE, **options}
    async with running(url, clock=clock, options=RuntimeOptions(**given)) as node:
        await ensure_root(node.database, root_key=ROOT_KEY, clock=clock)
        app = create_app(Settings(data_dir=Path("/nonexistent")), url, runtime=node)
        transport = httpx2.ASGITransport(app=app, client=("192.0.2.7", 4711))
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as client,
        ):
            yield World(app, client, node, clock, secrets={ADMIN: ROOT_KEY})


@asynccontextmanager
async def furnished_world_on(url: str, **options: Any) -> AsyncIterator[World]:
    """The same, with the tenant ACME and its key."""
    async with world_on(url, **options) as world:
        await world.add_tenant(ACME)
        yield world
