"""What agents do with their requests in the llm replay, and what it comes to. When they do it is the drive's business.

A hold of an estimate before, the actual tokens after. A few settle late or never, some hold on longer or give back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from domain.budget.values import OveragePolicy
from server.replay.llm_calls import Charged, Denied, Held, LlmCalls
from server.replay.llm_ledger import ReplyLedger
from server.replay.llm_world import CAPPED, MAX_TOKENS, Funds, Job
from server.replay.world import ReplayError

EXPIRED: Final = "RESERVATION_EXPIRED"
EXTENSION_MS: Final = 30_000


class Fate(StrEnum):
    """How an agent treats its hold."""

    IN_TIME = "in time"
    EXTENDED = "extended"
    """Its answer takes longer: the hold's time is prolonged before it is settled."""
    GIVEN_UP = "given up"
    """Nothing was used: the hold is released."""
    IN_GRACE = "in grace"
    """Settles after the TTL and before the grace is over."""
    TOO_LATE = "too late"
    """Settles after the grace: refused, and what was used is debited instead, under the same key."""
    LEFT = "left"
    """Crashed: never settles, and the hold expires."""


FATES: Final = {
    5: Fate.IN_GRACE,
    10: Fate.LEFT,
    15: Fate.TOO_LATE,
    20: Fate.EXTENDED,
    25: Fate.GIVEN_UP,
}


def fate_of(number: int) -> Fate:
    """Of the request with this number: a few of every hundred are special, the same ones in every run."""
    return FATES.get(number % 100, Fate.IN_TIME)


@dataclass(slots=True, kw_only=True)
class LlmTally:
    """What one agent's requests came to."""

    allowed: int = 0
    """Held, with caps or without."""
    capped: int = 0
    """Of them, held with caps."""
    denied: int = 0
    committed: int = 0
    in_grace: int = 0
    """Of them, after the TTL."""
    cut: int = 0
    """Of them, charged less than used, since no more was left."""
    overdraft: int = 0
    """Of them, charged more than held while a budget of theirs is in debt."""
    refused: int = 0
    """Holds that could not be settled with the actual, and were settled with what was held."""
    extended: int = 0
    released: int = 0
    too_late: int = 0
    recovered: int = 0
    """Of them, what was used could be debited, or a part of it."""
    left: int = 0
    charged: int = 0
    """Tokens."""


class LlmAgents:
    """All agents, over one way to the authority."""

    def __init__(self, calls: LlmCalls, ledger: ReplyLedger) -> None:
        self.tallies: dict[str, LlmTally] = defaultdict(LlmTally)
        self.denials: Counter[str] = Counter()
        """By code."""
        self._calls, self._ledger = calls, ledger

    async def furnish(self, funds: Funds) -> None:
        """The budgets as they are from the start, and a policy with caps."""
        for scope, (allocated, overdraft_limit) in funds.opening().items():
            await self._calls.make_budget(scope, allocated=allocated, overdraft_limit=overdraft_limit)
            self._ledger.note_allocated(scope, allocated)
        await self._calls.make_policy("short answers", pattern=f"*/agent:{CAPPED}", max_tokens=MAX_TOKENS)

    async def pay_instalment(self, funds: Funds, number: int) -> None:
        """Credit every agent's budget with one more part of it."""
        for agent in funds.agents:
            await self.credit(agent.scope, funds.instalment(agent), key=f"instalment-{number}-{agent.name}")

    async def credit(self, scope: str, amount: int, *, key: str) -> None:
        await self._calls.credit(scope, amount, key=key)
        self._ledger.note_allocated(scope, amount)

    async def reserve(self, job: Job, *, ttl_ms: int, grace_ms: int) -> Held | None:
        tally = self._tally(job)
        outcome = await self._calls.reserve(job, ttl_ms=ttl_ms, grace_ms=grace_ms, key=f"reserve-{job.number}")
        if isinstance(outcome, Denied):
            tally.denied += 1
            self.denials[outcome.code] += 1
            return None
        tally.allowed += 1
        tally.capped += outcome.has_caps
        self._ledger.note_held(outcome)
        if fate_of(job.number) is Fate.LEFT:
            tally.left += 1
            self._ledger.note_expired(outcome)
        return outcome

    async def settle(self, held: Held) -> None:
        """As its fate will have it; a left hold is not settled."""
        match fate_of(held.job.number):
            case Fate.GIVEN_UP:
                await self._release(held)
            case Fate.EXTENDED:
                await self._commit(await self._extend(held))
            case _:
                await self._commit(held)

    async def _extend(self, held: Held) -> Held:
        outcome = await self._calls.extend(held, by_ms=EXTENSION_MS, key=f"extend-{held.job.number}")
        if isinstance(outcome, Denied):
            return _agreed_or_late(outcome, held)
        if outcome.expires_at != held.expires_at + EXTENSION_MS:
            late = outcome.expires_at - held.expires_at
            self._ledger.wrong.append(f"answers: {held.reservation_id} moved by {late} ms, asked for {EXTENSION_MS}")
        self._tally(held.job).extended += 1
        return outcome

    async def _release(self, held: Held) -> None:
        outcome = await self._calls.release(held, key=f"release-{held.job.number}")
        if outcome is None:
            self._tally(held.job).released += 1
            self._ledger.note_released(held)
        else:
            _agreed_or_late(outcome, held)
            self._tally(held.job).too_late += 1
            self._ledger.note_expired(held)

    async def _commit(self, held: Held) -> None:
        """With what was used; refused for being more than there is, with what was held."""
        tally, job, key = self._tally(held.job), held.job, f"commit-{held.job.number}"
        actual = _actual(held)
        outcome = await self._calls.commit(held, actual, request=job.request, key=key)
        if outcome == Denied(EXPIRED):
            self._ledger.note_expired(held)
            tally.too_late += 1
            await self._recover(job, actual, key=key)
            return
        if isinstance(outcome, Denied):
            tally.refused += 1
            self.denials[f"commit {outcome.code}"] += 1
            actual = held.amount
            outcome = await self._calls.commit(held, actual, request=job.request, key=f"{key}-as-held")
        if isinstance(outcome, Denied):
            raise ReplayError(f"not expected: a commit of what is held is refused as {outcome.code}")
        self._ledger.note_committed(held, actual, outcome)
        tally.committed += 1
        tally.in_grace += fate_of(job.number) is Fate.IN_GRACE
        tally.cut += outcome.amount < actual
        tally.overdraft += _is_overdraft(held, outcome)
        tally.charged += outcome.amount

    async def _recover(self, job: Job, actual: int, *, key: str) -> None:
        """Section 3: what was used is used, and the key of the failed commit is free for a debit."""
        outcome = await self._calls.debit(job.agent, actual, request=job.request, key=key)
        if isinstance(outcome, Denied):
            raise ReplayError(f"not expected: a debit of what is available is refused as {outcome.code}")
        self._ledger.note_debited(job.agent.scopes, actual, outcome)
        tally = self._tally(job)
        tally.recovered += 1
        tally.charged += outcome.amount

    def _tally(self, job: Job) -> LlmTally:
        return self.tallies[job.agent.name]


def sum_tallies(tallies: Iterable[LlmTally]) -> LlmTally:
    """Field by field."""
    each_of = list(tallies)
    return LlmTally(**{each.name: sum(getattr(tally, each.name) for tally in each_of) for each in fields(LlmTally)})


def _agreed_or_late(denied: Denied, held: Held) -> Held:
    """A server that stood still for longer than the hold's time may say so, and nothing else. Raises `ReplayError`."""
    if denied != Denied(EXPIRED):
        raise ReplayError(f"not expected: {held.reservation_id} is refused as {denied.code}")
    return held


def _actual(held: Held) -> int:
    """An agent that got caps keeps them: the answer is no longer than they say."""
    request = held.job.request
    generated = request.generated_tokens
    if held.max_tokens is not None:
        generated = min(generated, held.max_tokens)
    return request.context_tokens + generated


def _is_overdraft(held: Held, charged: Charged) -> bool:
    may_overdraw = held.job.agent.kind.overage_policy is OveragePolicy.ALLOW_WITH_OVERDRAFT
    return may_overdraw and charged.amount > held.amount and any(balance.debt for balance in charged.balances)
