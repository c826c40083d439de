"""The closed bodies of the runtime plane (1.1 to 1.6): names, types and which are required, and nothing else.

An explicit null stands for an absent optional field (decision 40). Ranges and lengths are refused by the decisions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from domain.amounts import Amount, Unit
from domain.budget.values import Action, Metrics, OveragePolicy, Subject


class Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object without any field but its own."""


class AmountBody(Closed, frozen=True):
    unit: Unit
    amount: int

    def value(self) -> Amount:
        return Amount(self.unit, self.amount)


class SubjectBody(Closed, frozen=True):
    tenant: str | None = None
    workspace: str | None = None
    app: str | None = None
    workflow: str | None = None
    agent: str | None = None
    toolset: str | None = None
    dimensions: dict[str, str] | None = None

    def value(self) -> Subject:
        return Subject(
            tenant=self.tenant,
            workspace=self.workspace,
            app=self.app,
            workflow=self.workflow,
            agent=self.agent,
            toolset=self.toolset,
            dimensions=self.dimensions,
        )


class ActionBody(Closed, frozen=True):
    kind: str
    name: str
    tags: tuple[str, ...] | None = None

    def value(self) -> Action:
        return Action(kind=self.kind, name=self.name, tags=self.tags or ())


class MetricsBody(Closed, frozen=True):
    tokens_input: int | None = None
    tokens_output: int | None = None
    latency_ms: int | None = None
    model_version: str | None = None
    custom: dict[str, Any] | None = None

    def value(self) -> Metrics:
        return Metrics(
            tokens_input=self.tokens_input,
            tokens_output=self.tokens_output,
            latency_ms=self.latency_ms,
            model_version=self.model_version,
            custom=self.custom,
        )


class KeyedBody(Closed, frozen=True):
    idempotency_key: str


class DecideBody(KeyedBody, frozen=True):
    subject: SubjectBody
    action: ActionBody
    estimate: AmountBody
    metadata: dict[str, Any] | None = None


class ReserveBody(KeyedBody, frozen=True):
    subject: SubjectBody
    action: ActionBody
    estimate: AmountBody
    ttl_ms: int | None = None
    grace_period_ms: int | None = None
    overage_policy: OveragePolicy | None = None
    dry_run: bool | None = None
    metadata: dict[str, Any] | None = None


class CommitBody(KeyedBody, frozen=True):
    actual: AmountBody
    metrics: MetricsBody | None = None
    metadata: dict[str, Any] | None = None


class ReleaseBody(KeyedBody, frozen=True):
    reason: str | None = None


class ExtendBody(KeyedBody, frozen=True):
    extend_by_ms: int
    metadata: dict[str, Any] | None = None


class EventBody(KeyedBody, frozen=True):
    """The wire calls a direct debit an event."""

    subject: SubjectBody
    action: ActionBody
    actual: AmountBody
    overage_policy: OveragePolicy | None = None
    metrics: MetricsBody | None = None
    client_time_ms: int | None = None
    metadata: dict[str, Any] | None = None
