"""`earmark replay llm --url`: the same requests against a running server over HTTP, one after another as fast as it goes.

Time is real, so an hour of requests is not an hour: most holds are settled at once, and those that shall be late or left
live as short as is allowed. The tenant is made for the run and closed after it; nothing else on the server is touched.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from domain.budget.values import Balance
from server.replay.drive import Progress
from server.replay.http import Address, HttpClient
from server.replay.llm import LlmOptions
from server.replay.llm_agents import Fate, LlmAgents, fate_of
from server.replay.llm_calls import Denied, Held, new_latencies
from server.replay.llm_ledger import ReplyLedger
from server.replay.llm_report import OTHERS, LlmReport, make_report
from server.replay.llm_trace import LlmRequest, read_requests
from server.replay.llm_wire import WireCalls
from server.replay.llm_world import INSTALMENTS, Agent, Funds, Job, assign
from server.replay.wire import Wire
from server.replay.world import ReplayError

TENANT_PREFIX: Final = "llm-replay-"
TTL_MS: Final = 60_000
GRACE_MS: Final = 5_000
SHORT_TTL_MS: Final = 1_000
"""The least that the protocol allows."""
SHORT_GRACE_MS: Final = 2_000
MARGIN_MS: Final = 200
QUIET_WITHIN_S: Final = 15.0
"""For the last holds to expire, and to be given back, once nothing is asked any more."""
POLL_S: Final = 0.1
LAST_TOKENS: Final = 10

AUDITED: Final = ("I1", "I2", "I3", "I4", "I5", OTHERS)
"""What can be seen from outside."""


async def run_live(
    url: str, key: str, path: Path, *, options: LlmOptions, progress: Progress | None = None
) -> LlmReport:
    """Replay the trace at `path` against the server at `url`, with its root key, and audit what it says came of it.

    Raises `TraceError` for a malformed file, ValueError for what is no address, `ReplayError` when the server refuses
    what it must not or is not there.
    """
    requests = read_requests(path, limit=options.limit)
    client = HttpClient(Address.parse(url), connections=options.concurrency)
    try:
        admin = Wire(client, {"x-admin-api-key": key})
        tenant_id = TENANT_PREFIX + secrets.token_hex(6)
        wire = await _make_tenant(client, admin, tenant_id)
        live = _Live(wire, tenant_id, requests, options, progress or (lambda _done, _total: None))
        report = await live.run()
        await admin.ask("PATCH", f"/v1/admin/tenants/{tenant_id}", {200}, body={"status": "CLOSED"})
        return report
    finally:
        client.close()


async def _make_tenant(client: HttpClient, admin: Wire, tenant_id: str) -> Wire:
    """A new tenant's, with a key of its own."""
    about = {"tenant_id": tenant_id, "name": "requests to language models"}
    await admin.post("/v1/admin/tenants", about, expected={200, 201})
    issued = await admin.post("/v1/admin/api-keys", {"tenant_id": tenant_id, "name": "replay"}, expected={201})
    return Wire(client, {"x-cycles-api-key": msgspec.json.decode(issued.body)["key_secret"]})


class _Live:
    def __init__(
        self, wire: Wire, tenant_id: str, requests: Sequence[LlmRequest], options: LlmOptions, progress: Progress
    ) -> None:
        self._wire, self._requests, self._options, self._progress = wire, requests, options, progress
        self._calls = WireCalls(wire, tenant_id)
        self._ledger = ReplyLedger()
        self._agents = LlmAgents(self._calls, self._ledger)
        self._jobs = tuple(assign(requests, tenant_id=tenant_id))
        self._funds = Funds.of(self._jobs, budget_percent=options.budget_percent)
        self._slots = asyncio.Semaphore(options.concurrency)
        self._done = 0

    async def run(self) -> LlmReport:
        await self._agents.furnish(self._funds)
        started = time.perf_counter_ns()
        await self._drive()
        wall_ms = (time.perf_counter_ns() - started) // 1_000_000
        latencies, self._calls.latencies = self._calls.latencies, new_latencies()
        audited = await self._audit()
        return make_report(
            self._requests,
            concurrency=self._options.concurrency,
            agents=self._agents,
            latencies=latencies,
            balances=audited.balances,
            wall_ms=wall_ms,
            violations=self._calls.wrong + self._ledger.wrong + audited.wrong,
            audited=AUDITED,
            asked_again=self._wire.asked_again + Counter({"to be told the same": self._calls.repeated}),
        )

    # -- the requests --------------------------------------------------------------------------------------------

    async def _drive(self) -> None:
        """Every request to its end, those that are late on purpose included."""
        paid = 1
        try:
            async with asyncio.TaskGroup() as group:
                for job in self._jobs:
                    if job.number * INSTALMENTS >= paid * len(self._jobs):
                        await self._agents.pay_instalment(self._funds, paid)
                        paid += 1
                    await self._slots.acquire()
                    group.create_task(self._take(job))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # they fail of the same: the first tells enough

    async def _take(self, job: Job) -> None:
        """Holds one of the slots when it begins."""
        is_short = fate_of(job.number) in (Fate.IN_GRACE, Fate.TOO_LATE, Fate.LEFT)
        ttl_ms, grace_ms = (SHORT_TTL_MS, SHORT_GRACE_MS) if is_short else (TTL_MS, GRACE_MS)
        try:
            held = await self._agents.reserve(job, ttl_ms=ttl_ms, grace_ms=grace_ms)
            self._done += 1
            self._progress(self._done, len(self._jobs))
            if held is not None and not is_short:
                await self._agents.settle(held)
        finally:
            self._slots.release()
        if held is not None and is_short and (wait_ms := _wait_ms(held)) is not None:
            await asyncio.sleep(wait_ms / 1_000)
            async with self._slots:
                await self._agents.settle(held)

    # -- the audit -----------------------------------------------------------------------------------------------

    async def _audit(self) -> _Audited:
        """With a few holds that are kept for it, and once more without any."""
        held = await self._hold_a_last_time()
        first = await self._quiet_balances()
        wrong = first.wrong + self._ledger.audit_holds(await self._calls.holds())
        for each in held:
            if await self._calls.release(each, key=f"release-{each.job.number}") is not None:
                raise ReplayError(f"not expected: {each.reservation_id} cannot be released")
            self._ledger.note_released(each)
        last = await self._quiet_balances()
        return _Audited(last.balances, list(dict.fromkeys(wrong + last.wrong)))

    async def _hold_a_last_time(self) -> list[Held]:
        """One hold an agent, with what it takes: budgets that ran out are paid up."""
        last = [self._last_job(number, agent) for number, agent in enumerate(self._funds.agents, start=1)]
        more = {job.agent.scope: job.estimate for job in last}
        more[last[0].agent.tenant_scope] = sum(job.estimate for job in last)
        for balance in await self._calls.balances():
            missing = max(0, more[balance.scope_path] + balance.debt - balance.remaining)
            await self._agents.credit(balance.scope_path, missing + 1, key=f"last-{balance.scope_path}")
        return [await self._hold(job) for job in last]

    async def _hold(self, job: Job) -> Held:
        """Not one of the trace's: it counts for nothing but the audit."""
        held = await self._calls.reserve(job, ttl_ms=TTL_MS, grace_ms=GRACE_MS, key=f"reserve-{job.number}")
        if isinstance(held, Denied):
            raise ReplayError(f"a budget that was paid up is refused as {held.code}")
        self._ledger.note_held(held)
        return held

    def _last_job(self, number: int, agent: Agent) -> Job:
        """Its number has nothing special about it."""
        request = LlmRequest(came_at=0, app=agent.app, context_tokens=LAST_TOKENS, generated_tokens=0)
        return Job(number=(len(self._jobs) // 100 + number) * 100, agent=agent, request=request)

    async def _quiet_balances(self) -> _Audited:
        """Once no more is held than was told: holds that nobody settles take until they are over."""
        deadline = time.monotonic() + QUIET_WITHIN_S
        while True:
            balances = await self._calls.balances()
            wrong = self._ledger.audit_balances(balances)
            if not any(text.startswith("I2 ") for text in wrong) or time.monotonic() > deadline:
                return _Audited(balances, wrong)
            await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class _Audited:
    balances: Sequence[Balance]
    wrong: list[str]


def _wait_ms(held: Held) -> int | None:
    """How long a late one takes, from when it is held; None for ever."""
    match fate_of(held.job.number):
        case Fate.IN_GRACE:
            return held.remaining_ttl_ms + MARGIN_MS
        case Fate.TOO_LATE:
            return held.remaining_ttl_ms + held.grace_ms + MARGIN_MS
        case _:
            return None
