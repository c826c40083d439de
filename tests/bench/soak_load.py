"""The commands of a soak, of both contexts: as many as the server takes from a few clients, beside a steady stream of those
that subscribers are told of."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from tests.bench.demand import ROOT
from tests.bench.serving import ROOT_KEY, KeepAlive
from tests.bench.soak_world import World, reservation_of, tenant_of

CREATE: Final = "mutation ($input: CreateGrantInput!) { it: createGrant(input: $input) { kind: __typename } }"
RESERVE: Final = """mutation ($input: ReserveBudgetInput!) { it: reserveBudget(input: $input) {
    kind: __typename ... on BudgetHold { reservationId } } }"""
COMMIT: Final = "mutation ($input: CommitBudgetInput!) { it: commitBudget(input: $input) { kind: __typename } }"
TOUCH: Final = """mutation ($input: ReserveBudgetsInput!) { it: reserveBudgets(input: $input) {
    kind: __typename ... on ReservedBudgets { outcomes { kind: __typename } } } }"""
ACTION: Final = {"kind": "llm.completion", "name": "gpt"}
TERM_MS: Final = 3_000
"""Of the grants that are made: they come to their end during the soak."""
TOUCH_TTL_MS: Final = 5_000
TOUCHED_EACH: Final = 10
GRANTS_SHARE: Final = 0.3
"""Of the commands that nobody is told of."""
AT_ONCE: Final = 8
TOO_MUCH: Final = 1 << 60


class Load:
    """Everything that is asked. `served` says where: the server may be another one after a while."""

    def __init__(self, world: World, port: Callable[[], int], *, watched: int) -> None:
        self._world = world
        self._port = port
        self._watched = watched
        """Tenants with lower numbers have subscribers."""
        self._random = random.Random(11)
        self._run = f"{time.time_ns():x}"
        self.count = 0
        self.kinds: Counter[str] = Counter()
        self.delays: list[float] = []
        """In ms, of the commands since they were last taken away."""

    # -- before ----------------------------------------------------------------------------------------------------

    async def touch_everything(self) -> None:
        """Every reservation, and some budgets of every tenant, whose others come into memory with them."""
        size = self._world.size
        await self._each(range(size.reservations), self._touch_reservation)
        await self._each(range(size.tenants), self._touch_budgets)
        self.delays.clear()

    async def _each(self, numbers: Iterable[int], ask: Callable[[KeepAlive, int], Awaitable[None]]) -> None:
        """A few at a time, each number once."""
        waiting = iter(numbers)

        async def work() -> None:
            connection = await KeepAlive.open(self._port())
            for number in waiting:
                await ask(connection, number)
            connection.close()

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def _touch_reservation(self, connection: KeepAlive, number: int) -> None:
        await self._create(connection, number, tenant=self._unwatched())

    async def _touch_budgets(self, connection: KeepAlive, tenant: int) -> None:
        agents = range(1, min(TOUCHED_EACH + 1, self._world.size.budgets_each))
        holds = [self._hold(tenant, agent, ttlMs=TOUCH_TTL_MS, gracePeriodMs=0) for agent in agents]
        answer = await self._ask(connection, TOUCH, {"reservations": holds}, key=self._world.secrets[tenant])
        wrong = [each for each in answer["outcomes"] if each["kind"] != "BudgetHold"]
        assert not wrong, wrong[:3]

    # -- during ----------------------------------------------------------------------------------------------------

    async def run(self, clients: int, *, told_every_s: float, goes_on: Callable[[], bool]) -> None:
        telling = (self._tell(told_every_s, goes_on, grants=grants) for grants in (True, False))
        await asyncio.gather(*(self._client(goes_on) for _ in range(clients)), *telling)

    async def _client(self, goes_on: Callable[[], bool]) -> None:
        connection = await KeepAlive.open(self._port())
        while goes_on():
            tenant = self._unwatched()
            if self._random.random() < GRANTS_SHARE:
                await self._create(connection, self._random.randrange(self._world.size.reservations), tenant=tenant)
            else:
                await self._spend(connection, tenant)
        connection.close()

    async def _tell(self, every_s: float, goes_on: Callable[[], bool], *, grants: bool) -> None:
        """A grant, whose course is three events, or a denial, which is one, for a tenant with subscribers."""
        connection = await KeepAlive.open(self._port())
        every_s *= 3 if grants else 1
        due = time.monotonic()
        while goes_on():
            due += every_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tenant = self._random.randrange(self._watched)
            if grants:
                await self._create(connection, self._random.randrange(self._world.size.reservations), tenant=tenant)
            else:
                hold = {**self._hold(tenant, 1), "estimate": {"unit": "TOKENS", "amount": str(TOO_MUCH)}}
                await self._ask(connection, RESERVE, hold, key=self._world.secrets[tenant])
        connection.close()

    async def _create(self, connection: KeepAlive, reservation: int, *, tenant: int) -> None:
        now = time.time_ns() // 1_000_000
        given = {
            "tenantId": ROOT,
            "accountId": self._world.account_id,
            "reservationId": reservation_of(reservation),
            "grantTenantId": tenant_of(tenant),
            "slots": 1,
            "startsAt": now,
            "endsAt": now + TERM_MS,
            "idempotencyKey": self._key(),
        }
        await self._ask(connection, CREATE, given, key=ROOT_KEY)

    async def _spend(self, connection: KeepAlive, tenant: int) -> None:
        key = self._world.secrets[tenant]
        agent = self._random.randrange(1, self._world.size.budgets_each)
        made = await self._ask(connection, RESERVE, self._hold(tenant, agent), key=key)
        actual = {"unit": "TOKENS", "amount": "40"}
        given = {"reservationId": made["reservationId"], "idempotencyKey": self._key(), "actual": actual}
        await self._ask(connection, COMMIT, given, key=key)

    def _hold(self, tenant: int, agent: int, **given: Any) -> dict[str, Any]:
        return {
            "idempotencyKey": self._key(),
            "subject": {"tenant": tenant_of(tenant), "agent": f"a{agent}"},
            "action": ACTION,
            "estimate": {"unit": "TOKENS", "amount": "50"},
            **given,
        }

    async def _ask(self, connection: KeepAlive, document: str, given: Any, *, key: str) -> dict[str, Any]:
        body = msgspec.json.encode({"query": document, "variables": {"input": given}})
        began = time.perf_counter()
        status, text = await connection.post("/graphql", body, key=key)
        self.delays.append((time.perf_counter() - began) * 1_000)
        answer = msgspec.json.decode(text)
        assert status == 200, text[:500]
        assert "errors" not in answer, text[:500]
        it: dict[str, Any] = answer["data"]["it"]
        self.count += len(it.get("outcomes", ())) or 1
        self.kinds[it["kind"]] += 1
        return it

    def _unwatched(self) -> int:
        return self._random.randrange(self._watched, self._world.size.tenants)

    def _key(self) -> str:
        return f"{self._run}-{self._random.getrandbits(96):x}"
