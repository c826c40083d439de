"""Clients of the published wire under `/v1` that hold, settle, give back, prolong, debit and fund, whatever happens.

Every call has a key and is sent again under it until it is answered. Some holds are settled in two ways at once, some are
settled about when they end, some are left. Time is real.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from server.replay.http import Address, HttpAnswer, HttpClient, NoAnswer
from tests.faults.crowd import Crowd, server_of
from tests.faults.cycles_books import CyclesBooks, Ended
from tests.faults.vanishing import Vanish

SPENDERS: Final = ("spender-a", "spender-b")
AGENTS: Final = ("x", "y")
POLICIES: Final = ("REJECT", "ALLOW_IF_AVAILABLE", "ALLOW_WITH_OVERDRAFT")
UNIT: Final = "TOKENS"
LIVES_MS: Final = ((1_000, 0), (1_000, 700), (2_500, 300), (60_000, 0))
"""TTL and grace. The long ones are always settled."""
LEFT_FOR_MS: Final = 5_000
"""No hold that may be left lives longer."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    tenant_id: str
    operation: str
    """As answers are remembered under it."""
    path: str
    body: Json
    hold: str | None = None

    @property
    def key(self) -> str:
        return str(self.body["idempotency_key"])


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Json

    @property
    def is_accepted(self) -> bool:
        return self.status < 300


SendOnce = Callable[[Call, int], Awaitable[Reply | None]]
"""A call, and which attempt this is; None when nobody knows what happened."""


class CyclesLoad(Crowd):
    """`books` has what the clients were told."""

    def __init__(self, send_once: SendOnce, *, seed: int) -> None:
        super().__init__()
        self.books = CyclesBooks()
        self.replies: list[tuple[Call, Reply]] = []
        self._send_once = send_once
        self._seed = seed
        self._repeated = 0

    async def one_after_another(self, number: int) -> None:
        client = _Client(self, random.Random(f"{self._seed}/{self.run_number}/{number}"), number)
        for count in itertools.count():
            if self.has_enough:
                await client.settle_long_holds()
                return
            await client.step(count)

    async def ask(self, call: Call) -> Reply:
        """Ask until there is an answer, and note it."""
        reply = await self.until_answered(lambda attempt: self._send_once(call, attempt), call)
        self.replies.append((call, reply))
        self.answered += 1
        note(self.books, call, reply)
        return reply

    async def repeat_all(self) -> None:
        """Whatever was accepted, asked for once more under its key, is told again as it was (section 4.2). Once each."""
        accepted = [(call, reply) for call, reply in self.replies[self._repeated :] if reply.is_accepted]
        self._repeated = len(self.replies)
        for begin in range(0, len(accepted), 32):
            page = accepted[begin : begin + 32]
            again = await asyncio.gather(*(self._again(call) for call, _ in page))
            for (call, reply), repeated in zip(page, again, strict=True):
                assert (repeated.status, timeless(repeated)) == (reply.status, timeless(reply)), call

    async def _again(self, call: Call) -> Reply:
        return await self.until_answered(lambda attempt: self._send_once(call, attempt), call)


def timeless(reply: Reply) -> Json:
    """Without the one field that is told anew."""
    return {name: value for name, value in reply.body.items() if name != "remaining_ttl_ms"}


def note(books: CyclesBooks, call: Call, reply: Reply) -> None:
    """What a reply says about the books. Fails for one that no client of this load may get."""
    assert reply.status in (200, 201, 409, 410), (call, reply)
    body = reply.body
    if not reply.is_accepted:
        books.note_refused(call.tenant_id, call.operation, call.key)
        if reply.status == 410:
            assert call.hold is not None
            if not call.operation.startswith("budget.extend"):  # which ends with the TTL, before the grace
                books.note_ended(call.hold, Ended("EXPIRED"))
        return
    books.note_accepted(call.tenant_id, call.operation, call.key)
    if call.operation == "budget.reserve":
        books.note_held(
            call.tenant_id,
            body["reservation_id"],
            key=call.key,
            amount=body["reserved"]["amount"],
            scopes=body["affected_scopes"],
            expires_at=body["expires_at_ms"],
        )
    elif call.operation == "budget.debit":
        charged = body.get("charged", call.body["actual"])["amount"]
        scopes = [balance["scope_path"] for balance in body["balances"]]
        books.note_debited(call.tenant_id, body["event_id"], key=call.key, charged=charged, scopes=scopes)
    elif call.operation == "budget.fund":
        books.note_credited(call.tenant_id, call.path.partition("scope=")[2].partition("&")[0], call.body)
    elif call.hold is not None and body["status"] == "ACTIVE":
        books.note_extended(call.hold, body["expires_at_ms"])
    elif call.hold is not None:
        books.note_ended(call.hold, Ended(body["status"], body.get("charged", {}).get("amount")))


@dataclass(slots=True)
class _Client:
    load: CyclesLoad
    chance: random.Random
    number: int
    holds: dict[str, int] = field(default_factory=dict)
    """Id to amount, of those that may still be active."""
    long: set[str] = field(default_factory=set)

    @property
    def tenant_id(self) -> str:
        return SPENDERS[self.number % len(SPENDERS)]

    async def step(self, count: int) -> None:
        key = f"client-{self.load.run_number}-{self.number}-{count}"
        steps: list[Callable[[str], Awaitable[None]]] = [self._reserve, self._debit, self._credit]
        weights = [5, 2, 1]
        if self.holds:
            steps += [self._commit, self._release, self._extend, self._settle_twice]
            weights += [5, 1, 2, 1]
        await self.chance.choices(steps, weights)[0](key)

    async def settle_long_holds(self) -> None:
        for hold in list(self.long):
            await self._end(self._release_of(hold, f"last-{hold}"), hold)

    async def _reserve(self, key: str) -> None:
        ttl_ms, grace_ms = self.chance.choice(LIVES_MS)
        body = self._request(key, "estimate", self.chance.randrange(1, 30))
        body |= {"ttl_ms": ttl_ms, "grace_period_ms": grace_ms}
        reply = await self._ask("budget.reserve", "/v1/reservations", body)
        if reply.is_accepted:
            self.holds[reply.body["reservation_id"]] = body["estimate"]["amount"]
            if ttl_ms > LEFT_FOR_MS:
                self.long.add(reply.body["reservation_id"])

    async def _debit(self, key: str) -> None:
        await self._ask("budget.debit", "/v1/events", self._request(key, "actual", self.chance.randrange(10)))

    async def _credit(self, key: str) -> None:
        scope = f"tenant:{self.tenant_id}" + self.chance.choice(["", *(f"/agent:{agent}" for agent in AGENTS)])
        body = {"idempotency_key": key, "operation": "CREDIT", "amount": tokens(self.chance.randrange(40))}
        await self._ask("budget.fund", f"/v1/admin/budgets/fund?scope={scope}&unit={UNIT}", body)

    async def _commit(self, key: str) -> None:
        """Mostly less than what is held; refused for being more than there is, it stays held."""
        hold = self._some_hold()
        reply = await self._end(self._commit_of(hold, key), hold)
        if reply.status == 409:
            await self._end(self._release_of(hold, f"{key}-instead"), hold)

    async def _release(self, key: str) -> None:
        hold = self._some_hold()
        await self._end(self._release_of(hold, key), hold)

    async def _extend(self, key: str) -> None:
        hold = self._some_hold()
        path, body = f"/v1/reservations/{hold}/extend", {"idempotency_key": key, "extend_by_ms": 400}
        await self._ask(f"budget.extend/{hold}", path, body, hold=hold)

    async def _settle_twice(self, key: str) -> None:
        """At once: no more than one of them comes to pass."""
        hold = self._some_hold()
        calls = (self._commit_of(hold, f"{key}-one"), self._release_of(hold, f"{key}-other"))
        first, second = await asyncio.gather(*(self._end(call, hold) for call in calls))
        assert not (first.is_accepted and second.is_accepted), hold

    async def _end(self, call: Call, hold: str) -> Reply:
        reply = await self.load.ask(call)
        if reply.is_accepted or reply.status == 410:
            self.holds.pop(hold, None)
            self.long.discard(hold)
        return reply

    def _some_hold(self) -> str:
        return self.chance.choice(list(self.holds))

    def _commit_of(self, hold: str, key: str) -> Call:
        actual = self.chance.randrange(self.holds[hold] + 15)
        body = {"idempotency_key": key, "actual": tokens(actual)}
        return self._call(f"budget.commit/{hold}", f"/v1/reservations/{hold}/commit", body, hold)

    def _release_of(self, hold: str, key: str) -> Call:
        body = {"idempotency_key": key}
        return self._call(f"budget.release/{hold}", f"/v1/reservations/{hold}/release", body, hold)

    def _request(self, key: str, what: str, amount: int) -> Json:
        agent = self.chance.choice([None, *AGENTS])
        subject = {"tenant": self.tenant_id} | ({} if agent is None else {"agent": agent})
        return {
            "idempotency_key": key,
            "subject": subject,
            "action": {"kind": "llm.completion", "name": "model"},
            what: tokens(amount),
            "overage_policy": self.chance.choice(POLICIES),
        }

    async def _ask(self, operation: str, path: str, body: Json, *, hold: str | None = None) -> Reply:
        return await self.load.ask(self._call(operation, path, body, hold))

    def _call(self, operation: str, path: str, body: Json, hold: str | None = None) -> Call:
        return Call(tenant_id=self.tenant_id, operation=operation, path=path, body=body, hold=hold)


def tokens(amount: int) -> Json:
    return {"unit": UNIT, "amount": amount}


class CyclesSender:
    """Sends calls to servers, in turn when one does not answer. `secrets`: tenant to key."""

    def __init__(self, addresses: list[str], *, connections: int) -> None:
        self._addresses = addresses
        self._clients = [HttpClient(Address.parse(address), connections=connections) for address in addresses]
        self._secrets: dict[str, str] = {}
        self.come_again = 0
        """Answers that said so."""
        self.vanish: Vanish | None = None

    async def furnish(self, books: CyclesBooks, root_key: str) -> None:
        """Make the spenders, their keys and their budgets."""
        for tenant_id in SPENDERS:
            await self._admin(root_key, "tenants", {"tenant_id": tenant_id, "name": tenant_id})
            made = await self._admin(root_key, "api-keys", {"tenant_id": tenant_id, "name": "a client"})
            self._secrets[tenant_id] = made["key_secret"]
            for scope, allocated, limit in _budgets_of(tenant_id):
                body = {"tenant_id": tenant_id, "scope": scope, "unit": UNIT, "allocated": tokens(allocated)}
                await self._admin(root_key, "budgets", {**body, "overdraft_limit": tokens(limit)})
                books.note_credited(tenant_id, scope, {"amount": tokens(allocated)})

    async def _admin(self, root_key: str, what: str, body: Json) -> Json:
        sent = json.dumps(body).encode()
        answer = await self._clients[0].ask("POST", f"/v1/admin/{what}", headers=_as_admin(root_key), body=sent)
        assert answer.status == 201, answer
        made: Json = json.loads(answer.body)
        return made

    async def send_once(self, call: Call, attempt: int) -> Reply | None:
        place = server_of(call.key, attempt, servers=len(self._clients))
        headers = self.headers_of(call)
        body = json.dumps(call.body).encode()
        if self.vanish is not None and await self.vanish(self._addresses[place], call.path, headers, body):
            return None
        try:
            answer = await self._clients[place].ask("POST", call.path, headers=headers, body=body)
        except NoAnswer:
            return None
        if answer.status == 429 or answer.status >= 500:
            self.come_again += 1
            assert is_ours(answer), answer
            return None
        return Reply(answer.status, json.loads(answer.body))

    def headers_of(self, call: Call) -> dict[str, str]:
        return {"x-cycles-api-key": self._secrets[call.tenant_id], "x-idempotency-key": call.key}

    def close(self) -> None:
        for client in self._clients:
            client.close()


def is_ours(answer: HttpAnswer) -> bool:
    """Whether an answer that says to come again is one that is meant so, and not a fault that nobody expected."""
    error: Json = json.loads(answer.body)
    return answer.status == 429 or "idempotency key" in error["message"]


def _budgets_of(tenant_id: str) -> list[tuple[str, int, int]]:
    """Scope, allocated, overdraft limit: little enough that each runs out now and then."""
    scope = f"tenant:{tenant_id}"
    return [(scope, 500, 60), (f"{scope}/agent:{AGENTS[0]}", 300, 0), (f"{scope}/agent:{AGENTS[1]}", 300, 40)]


def _as_admin(root_key: str) -> dict[str, str]:
    return {"x-admin-api-key": root_key}
