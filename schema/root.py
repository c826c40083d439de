"""The whole schema, put together once: types cannot be built into two schemas of one process."""

from __future__ import annotations

import sys
from typing import Final

import strawberry
from strawberry.schema.config import StrawberryConfig

from schema import events, paging, refusals, tenancy
from schema.budget import audit, budgets, holding, policies
from schema.budget import events as budget_events
from schema.budget import refusals as budget_refusals
from schema.budget import reservations as budget_reservations
from schema.budget import tenants as budget_tenants
from schema.budget import values as budget_values
from schema.capacity import availability, grants, instances, notices, plans, providers, reservations, usage
from schema.capacity import refusals as capacity_refusals
from schema.context import PerOperation
from schema.descriptions import describe
from schema.documents import PrepareDocument, RememberIntrospection
from schema.failures import DescribeFailures, StrictSchema
from schema.scalars import SCALARS
from schema.sharing import SharingExecutor
from schema.webhooks import changing as webhook_changing
from schema.webhooks import reading as webhook_reading
from schema.webhooks import things as webhook_things


@strawberry.type
class Query(
    tenancy.TenancyQuery,
    providers.ProviderQuery,
    reservations.ReservationQuery,
    grants.GrantQuery,
    notices.NoticeQuery,
    plans.PlanQuery,
    instances.InstanceQuery,
    usage.UsageQuery,
    events.EventQuery,
    holding.DecideQuery,
    budgets.BudgetQuery,
    budget_reservations.BudgetReservationQuery,
    policies.PolicyQuery,
    audit.AuditLogQuery,
    webhook_reading.WebhookQuery,
):
    """Reads. What does not exist for the caller is null; lists are pages."""


@strawberry.type
class Mutation(
    tenancy.TenancyMutation,
    providers.ProviderMutation,
    reservations.ReservationMutation,
    grants.GrantMutation,
    instances.InstanceMutation,
    notices.NoticeMutation,
    holding.HoldingMutation,
    budgets.BudgetMutation,
    policies.PolicyMutation,
    budget_tenants.TenantStatusMutation,
    webhook_changing.WebhookMutation,
):
    """Changes. Each answers with the object or with a typed refusal. A retry with the same idempotency key changes
    nothing more and gets the object as it is by then; about budgets, the answer that was given first."""


@strawberry.type
class Subscription(
    events.EventSubscription,
    reservations.ReservationSubscription,
    budget_events.BudgetEventSubscription,
    budgets.BudgetSubscription,
):
    """Streams that go on until one side ends them."""


describe(
    (
        paging,  # before all that make connections of their own out of it
        events,
        refusals,
        tenancy,
        availability,
        capacity_refusals,
        grants,
        instances,
        notices,
        plans,
        providers,
        reservations,
        usage,
        budget_refusals,
        budget_values,
        budget_events,
        budget_reservations,
        budgets,
        holding,
        policies,
        audit,
        budget_tenants,
        webhook_things,
        webhook_reading,
        webhook_changing,
        sys.modules[__name__],
    )
)

schema: Final = StrictSchema(
    query=Query,
    mutation=Mutation,
    subscription=Subscription,
    extensions=[
        DescribeFailures,
        PerOperation,
        PrepareDocument,
        RememberIntrospection,
    ],
    config=StrawberryConfig(scalar_map=SCALARS),
    execution_context_class=SharingExecutor,
)


def sdl() -> str:
    """The contract as text."""
    return f"{schema.as_str()}\n"
