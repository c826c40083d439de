"""Who spends in the llm replay: one tenant, an app for each service, and in each app an agent for each overage policy.

Budgets are shares of what the trace needs, so that some run out on the way whatever the trace: the tenant's, and those
of the agents that may not or may go into debt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from domain.budget.values import OveragePolicy, Subject
from server.replay.llm_trace import LlmRequest

WORKSPACE: Final = "production"
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
    tenant_id: str
    app: str
    kind: AgentKind

    @property
    def name(self) -> str:
        return f"{self.app}/{self.kind.name}"

    @property
    def scope(self) -> str:
        return f"{self.tenant_scope}/workspace:{WORKSPACE}/app:{self.app}/agent:{self.kind.name}"

    @property
    def tenant_scope(self) -> str:
        return f"tenant:{self.tenant_id}"

    @property
    def scopes(self) -> tuple[str, str]:
        """Of the budgets that its requests are charged to."""
        return (self.tenant_scope, self.scope)

    @property
    def subject(self) -> Subject:
        return Subject(tenant=self.tenant_id, workspace=WORKSPACE, app=self.app, agent=self.kind.name)


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


def assign(requests: Sequence[LlmRequest], *, tenant_id: str) -> Iterator[Job]:
    """Each app's requests in turn to its agents."""
    agents: dict[str, list[Agent]] = {}
    seen: Counter[str] = Counter()
    for number, request in enumerate(requests):
        ours = agents.setdefault(
            request.app, [Agent(tenant_id=tenant_id, app=request.app, kind=kind) for kind in KINDS]
        )
        yield Job(number=number, agent=ours[seen[request.app] % len(ours)], request=request)
        seen[request.app] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """What the tenant's and its agents' budgets are to be."""

    tenant_id: str
    needs: Mapping[Agent, int]
    """What each agent's requests take in all, in tokens."""
    budget_percent: int

    @classmethod
    def of(cls, jobs: Sequence[Job], *, budget_percent: int) -> Funds:
        needs: Counter[Agent] = Counter()
        for job in jobs:
            needs[job.agent] += job.tokens
        return cls(tenant_id=jobs[0].agent.tenant_id, needs=needs, budget_percent=budget_percent)

    @property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(self.needs)

    def opening(self) -> dict[str, tuple[int, int]]:
        """Scope to (allocated, overdraft limit) from the start: agents have their first instalment."""
        total = sum(self.needs.values())
        budgets = {f"tenant:{self.tenant_id}": (_share(total, self.budget_percent), _share(total, OVERDRAFT_PERCENT))}
        for agent, tokens in self.needs.items():
            budgets[agent.scope] = (self.instalment(agent), _share(tokens, agent.kind.overdraft_percent))
        return budgets

    def instalment(self, agent: Agent) -> int:
        return _share(self.needs[agent], agent.kind.budget_percent, parts=INSTALMENTS)


def _share(tokens: int, percent: int, *, parts: int = 1) -> int:
    return tokens * percent // 100 // parts
