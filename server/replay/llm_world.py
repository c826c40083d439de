"""Who spends in the llm replay: one tenant, an app for each service, and in each app an agent for each overage policy.

Budgets are shares of what the trace needs, so that some run out on the way whatever the trace: the tenant's, and those
of the agents that may not or may go into debt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from domain.amounts import Amount, Unit
from domain.authority import Principal
from domain.budget.records import FundingOperation
from domain.budget.repeats import BudgetOutcome
from domain.budget.values import Caps, OveragePolicy, Subject
from domain.outcomes import Refusal
from server.replay.llm_trace import LlmRequest
from server.replay.world import ReplayError, accepted
from workers.request import Caller
from workers.runtime import Runtime

Answer = TypeVar("Answer")

ROOT: Final = "platform"
TENANT: Final = "llm"
WORKSPACE: Final = "production"
TTL_MS: Final = 60_000
GRACE_MS: Final = 5_000
MAX_TOKENS: Final = 512
"""What the policy with caps lets an agent of its kind have generated."""
OVERDRAFT_PERCENT: Final = 2
"""Overdraft limit of the tenant's budget and of agents that may overdraw, of what they would need."""


@dataclass(frozen=True, slots=True)
class AgentKind:
    name: str
    overage_policy: OveragePolicy
    expected_tokens: int
    """What it thinks that an answer will take, before it has it: the estimate is the prompt and this."""
    budget_percent: int
    """Of the tokens of its requests."""
    overdraft_percent: int = 0


KINDS: Final = (
    AgentKind("strict", OveragePolicy.REJECT, 512, 110),
    AgentKind("thrifty", OveragePolicy.ALLOW_IF_AVAILABLE, 128, 65),
    AgentKind("trusted", OveragePolicy.ALLOW_WITH_OVERDRAFT, 128, 60, OVERDRAFT_PERCENT),
)
"""Requests of an app go round these. What a budget is short of is what its kind is there to show."""

INSTALMENTS: Final = 6
"""Agents get their budgets in so many equal parts over the time of the trace, the tenant has its own from the start."""

CAPPED: Final = "thrifty"
"""The kind that a policy caps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    app: str
    kind: AgentKind

    @property
    def name(self) -> str:
        return f"{self.app}/{self.kind.name}"

    @property
    def scope(self) -> str:
        return f"tenant:{TENANT}/workspace:{WORKSPACE}/app:{self.app}/agent:{self.kind.name}"

    @property
    def subject(self) -> Subject:
        return Subject(tenant=TENANT, workspace=WORKSPACE, app=self.app, agent=self.kind.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request, and whose it is."""

    number: int
    agent: Agent
    request: LlmRequest

    @property
    def estimate(self) -> int:
        return self.request.context_tokens + self.agent.kind.expected_tokens

    @property
    def tokens(self) -> int:
        return self.request.context_tokens + self.request.generated_tokens


def assign(requests: Sequence[LlmRequest]) -> Iterator[Job]:
    """Each app's requests in turn to its agents."""
    agents: dict[str, list[Agent]] = {}
    seen: Counter[str] = Counter()
    for number, request in enumerate(requests):
        ours = agents.setdefault(request.app, [Agent(app=request.app, kind=kind) for kind in KINDS])
        yield Job(number=number, agent=ours[seen[request.app] % len(ours)], request=request)
        seen[request.app] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmWorld:
    """The tenant's caller, and what each agent's requests need in all, in tokens."""

    runtime: Runtime
    caller: Caller
    needs: Mapping[Agent, int]

    async def pay_instalment(self, number: int) -> None:
        """Credit every agent's budget with one more part of it."""
        for agent, tokens in self.needs.items():
            agreed(
                await self.runtime.budgets.fund(
                    self.caller,
                    scope=agent.scope,
                    unit=Unit.TOKENS,
                    kind=FundingOperation.CREDIT,
                    amount=Amount(Unit.TOKENS, _share(tokens, agent.kind.budget_percent, parts=INSTALMENTS)),
                    idempotency_key=f"instalment-{number}-{agent.name}",
                )
            )


async def make_llm_world(runtime: Runtime, jobs: Sequence[Job], *, budget_percent: int) -> LlmWorld:
    """Open the node; make the tenant, its key, its budgets and a policy with caps, all through the desks."""
    root = Caller(principal=await _holder(runtime, await runtime.open(root_tenant=ROOT)))
    agreed(await runtime.budgets.create_tenant(root, tenant_id=TENANT, name="requests to language models"))
    issued = accepted(await runtime.keys.create_api_key(root, tenant_id=TENANT, name="replay"))
    caller = Caller(principal=await _holder(runtime, issued.secret))
    needs: Counter[Agent] = Counter()
    for job in jobs:
        needs[job.agent] += job.tokens
    total = needs.total()
    budgets = {f"tenant:{TENANT}": (_share(total, budget_percent), _share(total, OVERDRAFT_PERCENT))}
    for agent, tokens in needs.items():
        first = _share(tokens, agent.kind.budget_percent, parts=INSTALMENTS)
        budgets[agent.scope] = (first, _share(tokens, agent.kind.overdraft_percent))
    for scope, (allocated, overdraft_limit) in budgets.items():
        await _make_budget(runtime, caller, scope, allocated=allocated, overdraft_limit=overdraft_limit)
    caps = Caps(max_tokens=MAX_TOKENS)
    pattern = f"*/agent:{CAPPED}"
    agreed(await runtime.budgets.create_policy(caller, name="short answers", scope_pattern=pattern, caps=caps))
    return LlmWorld(runtime=runtime, caller=caller, needs=needs)


async def _make_budget(runtime: Runtime, caller: Caller, scope: str, *, allocated: int, overdraft_limit: int) -> None:
    agreed(
        await runtime.budgets.create_budget(
            caller,
            scope=scope,
            unit=Unit.TOKENS,
            allocated=Amount(Unit.TOKENS, allocated),
            overdraft_limit=Amount(Unit.TOKENS, overdraft_limit),
        )
    )


def _share(tokens: int, percent: int, *, parts: int = 1) -> int:
    return tokens * percent // 100 // parts


def agreed(outcome: BudgetOutcome[Answer]) -> Answer:
    """The answer. Raises `ReplayError` for a refusal: going on would prove nothing."""
    if isinstance(outcome, Refusal):
        raise ReplayError(f"not expected: {outcome.code}: {outcome.message}")
    return outcome.answer


async def _holder(runtime: Runtime, secret: str | None) -> Principal:
    """Whoever holds this secret, as a request of theirs would be recognised."""
    principal = await runtime.authenticator.authenticate(secret or "")
    if principal is None:
        raise ReplayError("a key that was just made is not valid: is the database a fresh one?")
    return principal
