"""What requests and answers about budgets are made of: amounts, subjects, actions, caps and balances."""

from __future__ import annotations

from typing import Any

import strawberry

from domain.amounts import Amount, Unit
from domain.budget import values
from domain.budget.values import Decision, OveragePolicy
from schema.inputs import given
from schema.scalars import Int64, JSONObject, int64

strawberry.enum(
    OveragePolicy,
    name="OveragePolicy",
    description="What happens when the actual is more than was held: it is refused, cut to what remains, or becomes "
    "debt up to the overdraft limit.",
)
strawberry.enum(
    Decision, name="BudgetDecision", description="Whether the work may go ahead. A DENY is an answer, no refusal."
)


# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class Balance:
    """How one budget stood at an instant. `remaining` is what is allocated, less spent, reserved and debt."""

    scope: str = strawberry.field(description="The whole path, from the tenant down.")
    unit: Unit
    allocated: Int64
    remaining: Int64
    reserved: Int64
    spent: Int64
    debt: Int64
    overdraft_limit: Int64
    is_over_limit: bool

    @classmethod
    def of(cls, balance: values.Balance) -> Balance:
        return cls(
            scope=balance.scope_path,
            unit=balance.unit,
            allocated=Int64(balance.allocated),
            remaining=Int64(balance.remaining),
            reserved=Int64(balance.reserved),
            spent=Int64(balance.spent),
            debt=Int64(balance.debt),
            overdraft_limit=Int64(balance.overdraft_limit),
            is_over_limit=balance.is_over_limit,
        )


def balances(found: tuple[values.Balance, ...]) -> list[Balance]:
    return [Balance.of(balance) for balance in found]


@strawberry.type
class Caps:
    """Soft limits that the client is told to keep. Null or an empty list is no limit."""

    max_tokens: Int64 | None
    max_steps_remaining: Int64 | None
    tool_allowlist: list[str]
    tool_denylist: list[str]
    cooldown_ms: Int64 | None


def show_caps(caps: values.Caps | None) -> Caps | None:
    if caps is None:
        return None
    return Caps(
        max_tokens=int64(caps.max_tokens),
        max_steps_remaining=int64(caps.max_steps_remaining),
        tool_allowlist=list(caps.tool_allowlist),
        tool_denylist=list(caps.tool_denylist),
        cooldown_ms=int64(caps.cooldown_ms),
    )


# -- inputs ------------------------------------------------------------------------------------------------------------


class DomainInput:
    """An input object that stands for a value of the domain."""

    def value(self) -> Any:
        raise NotImplementedError


def given_values(wanted: Any) -> dict[str, Any]:
    """The fields of an input object by their Python names, as desks take them."""
    return {name: each.value() if isinstance(each, DomainInput) else each for name, each in given(wanted).items()}


@strawberry.input
class AmountInput(DomainInput):
    """From 0 to 2^63-1 of one unit."""

    unit: Unit
    amount: Int64

    def value(self) -> Amount:
        return Amount(self.unit, self.amount)


@strawberry.input
class DimensionInput:
    """A word for reports; it plays no part in any decision."""

    name: str
    value: str


@strawberry.input
class SubjectInput(DomainInput):
    """Who spends: at least one level. Budgets of all its scopes take part."""

    tenant: str | None = None
    workspace: str | None = None
    app: str | None = None
    workflow: str | None = None
    agent: str | None = None
    toolset: str | None = None
    dimensions: list[DimensionInput] | None = None

    def value(self) -> values.Subject:
        named = None if self.dimensions is None else {given.name: given.value for given in self.dimensions}
        return values.Subject(
            tenant=self.tenant,
            workspace=self.workspace,
            app=self.app,
            workflow=self.workflow,
            agent=self.agent,
            toolset=self.toolset,
            dimensions=named,
        )


@strawberry.input
class ActionInput(DomainInput):
    """What is about to be done, or was."""

    kind: str
    name: str
    tags: list[str] | None = None

    def value(self) -> values.Action:
        return values.Action(kind=self.kind, name=self.name, tags=tuple(self.tags or ()))


@strawberry.input
class MetricsInput(DomainInput):
    """What the client measured: kept for analysis."""

    tokens_input: Int64 | None = None
    tokens_output: Int64 | None = None
    latency_ms: Int64 | None = None
    model_version: str | None = None
    custom: JSONObject | None = None

    def value(self) -> values.Metrics:
        return values.Metrics(**given(self))


@strawberry.input
class CapsInput(DomainInput):
    """Soft limits that clients are told to keep."""

    max_tokens: Int64 | None = None
    max_steps_remaining: Int64 | None = None
    tool_allowlist: list[str] | None = None
    tool_denylist: list[str] | None = None
    cooldown_ms: Int64 | None = None

    def value(self) -> values.Caps:
        return values.Caps(
            max_tokens=self.max_tokens,
            max_steps_remaining=self.max_steps_remaining,
            tool_allowlist=tuple(self.tool_allowlist or ()),
            tool_denylist=tuple(self.tool_denylist or ()),
            cooldown_ms=self.cooldown_ms,
        )
