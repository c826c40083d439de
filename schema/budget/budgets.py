"""Budgets: what a scope has to give in one unit, and who governs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Annotated, Any, Final

import strawberry

from domain.amounts import Unit
from domain.budget import answers, records
from domain.budget.queries import BudgetQuery as BudgetChoice
from domain.budget.queries import BudgetSort
from domain.budget.records import BudgetStatus, FundingOperation, RolloverPolicy
from domain.budget.refusals import BudgetNotFound
from domain.budget.values import OveragePolicy
from schema.budget.answers import ask, listed, read
from schema.budget.refusals import BUDGET_REFUSALS
from schema.budget.values import AmountInput, Balance, Caps, CapsInput, given_values, show_caps
from schema.context import operation
from schema.governing import governs
from schema.inputs import ALL, INPUT, own_tenant
from schema.paging import AFTER, FIRST, Connection, take
from schema.refusals import result
from schema.scalars import Int64, JSONObject, Millis, json_object, millis
from schema.watching import snapshots
from workers.budget.changes import watched_keys
from workers.budget.desk import BudgetDesk
from workers.budget.listing import SeenBudget

USED_FROM: Final = strawberry.argument(description="So many millionths or more of what is allocated are spent.")
USED_TO: Final = strawberry.argument(description="So many millionths or fewer of what is allocated are spent.")

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(
    BudgetStatus, name="BudgetStatus", description="FROZEN: no new holds, debits or funding. CLOSED: for good."
)
strawberry.enum(
    RolloverPolicy, name="RolloverPolicy", description="What becomes of the rest at the end of a period; kept as set."
)
strawberry.enum(
    FundingOperation,
    name="FundingOperation",
    description="CREDIT adds, DEBIT takes away, RESET sets what is allocated, RESET_SPENT begins a period anew, "
    "REPAY_DEBT pays debt back.",
)
strawberry.enum(BudgetSort, name="BudgetSort", description="Equals are in the order of their ids.")


@strawberry.type
class Budget:
    """What a scope has to give in one unit. `remaining` is what is allocated, less spent, reserved and debt."""

    id: strawberry.ID
    tenant_id: strawberry.ID
    scope: str = strawberry.field(description="The whole path, from the tenant down.")
    unit: Unit
    status: BudgetStatus
    allocated: Int64
    remaining: Int64
    reserved: Int64
    spent: Int64
    debt: Int64
    overdraft_limit: Int64
    utilization_millionths: Int64 = strawberry.field(
        description="What is spent of what is allocated, in millionths, rounded down; of nothing it is nothing."
    )
    is_over_limit: bool = strawberry.field(description="Takes no new holds until it is funded.")
    commit_overage_policy: OveragePolicy | None
    rollover_policy: RolloverPolicy
    caps: Caps | None
    metadata: JSONObject | None
    period_start_at: Millis | None
    period_end_at: Millis | None
    created_at: Millis
    updated_at: Millis | None
    closed_at: Millis | None

    @classmethod
    def of(cls, seen: SeenBudget) -> Budget:
        budget = seen.budget
        return cls(
            id=strawberry.ID(budget.budget_id),
            tenant_id=strawberry.ID(seen.tenant_id),
            scope=budget.scope_path,
            unit=budget.unit,
            status=budget.status,
            allocated=Int64(budget.allocated),
            remaining=Int64(budget.remaining),
            reserved=Int64(budget.reserved),
            spent=Int64(budget.spent),
            debt=Int64(budget.debt),
            overdraft_limit=Int64(budget.overdraft_limit),
            utilization_millionths=Int64(budget.utilization_millionths),
            is_over_limit=budget.is_over_limit,
            commit_overage_policy=budget.commit_overage_policy,
            rollover_policy=budget.rollover_policy,
            caps=show_caps(budget.caps),
            metadata=json_object(budget.metadata),
            period_start_at=millis(budget.period_start_at),
            period_end_at=millis(budget.period_end_at),
            created_at=Millis(budget.created_at),
            updated_at=millis(budget.updated_at),
            closed_at=millis(budget.closed_at),
        )


@strawberry.type
class BudgetFunding:
    """A change of what a budget has to give."""

    budget_id: strawberry.ID
    operation: FundingOperation
    before: Balance
    after: Balance
    decided_at: Millis

    @classmethod
    def of(cls, answer: answers.FundAnswer) -> BudgetFunding:
        return cls(
            budget_id=strawberry.ID(answer.budget_id),
            operation=answer.operation,
            before=Balance.of(answer.before),
            after=Balance.of(answer.after),
            decided_at=Millis(answer.decided_at),
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class CreateBudgetInput:
    """Opens the budget of a scope and unit. Root names another tenant with `tenantId`, here and in what follows."""

    tenant_id: strawberry.ID | None = None
    scope: str
    unit: Unit
    allocated: AmountInput
    overdraft_limit: AmountInput | None = None
    commit_overage_policy: OveragePolicy | None = None
    rollover_policy: RolloverPolicy = RolloverPolicy.NONE
    period_start_at: Millis | None = None
    period_end_at: Millis | None = None
    caps: CapsInput | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class UpdateBudgetInput:
    """What is not given stays as it is."""

    tenant_id: strawberry.ID | None = None
    scope: str
    unit: Unit
    overdraft_limit: AmountInput | None = None
    commit_overage_policy: OveragePolicy | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class FundBudgetInput:
    """Without an idempotency key a retry is another funding. `spent` is for RESET_SPENT."""

    tenant_id: strawberry.ID | None = None
    scope: str
    unit: Unit
    kind: FundingOperation = strawberry.field(name="operation")
    amount: AmountInput
    spent: AmountInput | None = None
    reason: str | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class FreezeBudgetInput:
    """Names a budget and why."""

    tenant_id: strawberry.ID | None = None
    scope: str
    unit: Unit
    reason: str | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


@strawberry.input
class UnfreezeBudgetInput:
    """Names a budget and why."""

    tenant_id: strawberry.ID | None = None
    scope: str
    unit: Unit
    reason: str | None = None
    metadata: JSONObject | None = None
    idempotency_key: str | None = None


# -- results -----------------------------------------------------------------------------------------------------------

CreateBudgetResult = result("CreateBudgetResult", Budget, *BUDGET_REFUSALS)
UpdateBudgetResult = result("UpdateBudgetResult", Budget, *BUDGET_REFUSALS)
FundBudgetResult = result("FundBudgetResult", BudgetFunding, *BUDGET_REFUSALS)
FreezeBudgetResult = result("FreezeBudgetResult", Budget, *BUDGET_REFUSALS)
UnfreezeBudgetResult = result("UnfreezeBudgetResult", Budget, *BUDGET_REFUSALS)


def _of(tenant_id: str | None) -> Callable[[records.Budget], Budget]:
    return lambda budget: Budget.of(SeenBudget(tenant_id=own_tenant(tenant_id), budget=budget))


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetQuery:
    @strawberry.field
    async def budget(self, scope: str, unit: Unit, tenant_id: strawberry.ID | None = None) -> Budget | None:
        """The budget of a scope and unit, in the caller's own tenant; for root, in any."""
        current = operation()
        found = await current.runtime.budget_reads.budget(current.caller, scope=scope, unit=unit, tenant_id=tenant_id)
        return None if isinstance(found, BudgetNotFound) else Budget.of(read(found))

    @strawberry.field
    async def budgets(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        scope_prefix: str | None = None,
        unit: Unit | None = None,
        status: BudgetStatus | None = None,
        is_over_limit: bool | None = None,
        has_debt: bool | None = None,
        utilization_from_millionths: Annotated[Int64 | None, USED_FROM] = None,
        utilization_to_millionths: Annotated[Int64 | None, USED_TO] = None,
        search: Annotated[
            str | None, strawberry.argument(description="Part of the scope or of the tenant's id.")
        ] = None,
        sort_by: BudgetSort = BudgetSort.SCOPE,
        descending: bool = False,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[Budget] | None:
        """The tenant's budgets by scope, or as they are to be sorted; closed ones too."""
        current = operation()
        chosen = BudgetChoice(
            scope_prefix=scope_prefix,
            unit=unit,
            status=status,
            over_limit=is_over_limit,
            has_debt=has_debt,
            utilization_least_millionths=utilization_from_millionths,
            utilization_most_millionths=utilization_to_millionths,
            search=search,
            sort_by=sort_by,
            descending=descending,
        )
        found = await current.runtime.budget_reads.budgets(
            current.caller,
            query=chosen,
            limit=take(first),
            cursor=after,
            tenant_id=tenant_id,
            all_tenants=all_tenants,
        )
        return listed(found, Budget.of, after=after)


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetMutation:
    @governs(CreateBudgetResult, "budget")
    async def create_budget(self, wanted: Annotated[CreateBudgetInput, INPUT]) -> Any:
        """A scope has at most one budget in a unit; a second one is refused as a duplicate, which names the first."""
        return await ask(BudgetDesk.create_budget, _of(wanted.tenant_id), **given_values(wanted))

    @governs(UpdateBudgetResult, "budget")
    async def update_budget(self, wanted: Annotated[UpdateBudgetInput, INPUT]) -> Any:
        """Changes what a budget allows."""
        return await ask(BudgetDesk.update_budget, _of(wanted.tenant_id), **given_values(wanted))

    @governs(FundBudgetResult, "budget")
    async def fund_budget(self, wanted: Annotated[FundBudgetInput, INPUT]) -> Any:
        """Changes what a budget has to give. A retry with the same idempotency key gets the same answer."""
        return await ask(BudgetDesk.fund, BudgetFunding.of, **given_values(wanted))

    @governs(FreezeBudgetResult, "budget")
    async def freeze_budget(self, wanted: Annotated[FreezeBudgetInput, INPUT]) -> Any:
        """No new holds, debits or funding; what is held still settles."""
        return await ask(BudgetDesk.freeze_budget, _of(wanted.tenant_id), **given_values(wanted))

    @governs(UnfreezeBudgetResult, "budget")
    async def unfreeze_budget(self, wanted: Annotated[UnfreezeBudgetInput, INPUT]) -> Any:
        """Undoes a freeze."""
        return await ask(BudgetDesk.unfreeze_budget, _of(wanted.tenant_id), **given_values(wanted))


# -- subscription ------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetSubscription:
    @strawberry.subscription
    async def budget_changed(
        self, scope: str, unit: Unit, tenant_id: strawberry.ID | None = None
    ) -> AsyncGenerator[Budget, None]:
        """The budget as it is, then again after each change; changes that come together are shown once. When the server
        ends the stream, the error's extensions have a code."""
        current = operation()
        reads, caller = current.runtime.budget_reads, current.caller
        look = partial(reads.budget, caller, scope=scope, unit=unit, tenant_id=tenant_id)
        read(await look())
        keys = watched_keys(own_tenant(tenant_id), scope, unit)
        changes = current.runtime.board.watch(*keys, key_id=caller.principal.key_id)
        return snapshots(current, changes, look, Budget.of)
