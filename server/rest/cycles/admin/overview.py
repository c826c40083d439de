"""The operator's overview in one answer (11.8): how much of everything there is, and what stands out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from domain.budget.envelopes import envelope
from domain.budget.records import Budget
from domain.instants import show_instant
from domain.outcomes import Refusal
from domain.terms import SECOND_MS
from domain.webhooks.subscriptions import Subscription
from server.rest.cycles.answers import Document
from server.rest.cycles.exchange import Answer, Exchange, Reply
from storage.webhooks.figures import WebhookFigures
from workers.budget.operator_reads import OVERVIEW_MS
from workers.budget.reads import Overview

CATEGORIES: Final = ("budget", "tenant", "api_key", "policy", "reservation", "system", "webhook")
"""Those that this wire publishes; the streams hold others, too."""


async def get(exchange: Exchange) -> Answer:
    found = await exchange.runtime.budget_reads.overview(exchange.caller)
    if isinstance(found, Refusal):
        return found
    webhooks = await exchange.runtime.webhook_reads.figures(exchange.caller)
    return webhooks if isinstance(webhooks, Refusal) else Reply(show_overview(found, webhooks))


def show_overview(seen: Overview, webhooks: WebhookFigures) -> Document:
    by_category = {name: seen.events_by_category[name] for name in CATEGORIES if name in seen.events_by_category}
    return {
        "as_of": show_instant(seen.since + OVERVIEW_MS),
        "event_window_seconds": OVERVIEW_MS // SECOND_MS,
        "tenant_counts": _counts(seen.tenants, ("active", "suspended", "closed")),
        "budget_counts": {
            **_counts(seen.budgets, ("active", "frozen", "closed")),
            "over_limit": seen.budgets_over_limit,
            "with_debt": seen.budgets_with_debt,
            "by_unit": dict(seen.budgets_by_unit),
        },
        "over_limit_scopes": [_over_limit(budget) for _, budget in seen.over_limit],
        "debt_scopes": [_in_debt(budget) for _, budget in seen.in_debt],
        "webhook_counts": {
            "total": webhooks.total,
            "active": webhooks.active,
            "disabled": webhooks.disabled,
            "with_failures": webhooks.with_failures,
        },
        "failing_webhooks": [_failing(webhook) for webhook in webhooks.failing],
        "event_counts": {"total_recent": sum(by_category.values()), "by_category": by_category},
        "recent_denials": [envelope(event) for event in seen.denials],
        "recent_expiries": [envelope(event) for event in seen.expiries],
    }


def _counts(counted: Mapping[str, int], names: Sequence[str]) -> Document:
    return {"total": sum(counted.values()), **{name: counted.get(name.upper(), 0) for name in names}}


def _over_limit(budget: Budget) -> Document:
    names = ("allocated", "remaining", "debt")
    return {**_named(budget), **{name: getattr(budget, name) for name in names}}


def _in_debt(budget: Budget) -> Document:
    return {**_named(budget), "debt": budget.debt, "overdraft_limit": budget.overdraft_limit}


def _failing(webhook: Subscription) -> Document:
    last_at = webhook.health.last_failure_at
    return {
        "subscription_id": webhook.subscription_id,
        "url": webhook.url,
        "consecutive_failures": webhook.health.consecutive_failures,
        **({} if last_at is None else {"last_failure_at": show_instant(last_at)}),
    }


def _named(budget: Budget) -> Document:
    return {"scope": budget.scope_path, "unit": budget.unit.value}
