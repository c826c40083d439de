"""The desk for budgets, and its governing half: budgets, funding, policies and tenants (sections 2.8, 7 and 11).

`tenant_id` None is the caller's own tenant; another one is for root's members. Methods refuse ACCESS_DENIED for what is
missing there first, then text that cannot be kept as INVALID_INPUT, NOT_FOUND (`tenant_id`), then whatever the decision
of the same name refuses. What they take is in `wanted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Unpack

from domain.budget import commands as c
from domain.budget.answers import FundAnswer
from domain.budget.records import Budget, Policy, TenantStatus
from domain.budget.repeats import BudgetOutcome
from domain.budget.shapes import invalid
from domain.budget.tenants import TenantAnswer
from domain.budget.values import ActorType, Origin
from domain.identity import RESERVED_TENANT_IDS, TENANT_ID, in_words
from domain.outcomes import InvalidState, Refusal
from workers.budget import wanted as w
from workers.budget.asking import BudgetAsker
from workers.budget.holding import HoldingDesk
from workers.budget.rights import RIGHTS, refuse
from workers.request import Caller

UNASKED: Final = "~"
"""Begins the idempotency keys that the desk makes up for requests that came without one."""
DELETED: Final = "tenant_deleted"
"""Marks, in place of a request's id, the cascade of a tenant that was deleted as a whole."""


class BudgetDesk(HoldingDesk):
    """Where every command about budgets enters, whichever edge it comes over. `keys_changed` is called when a tenant's
    keys may have gone with it."""

    def __init__(self, asker: BudgetAsker, *, keys_changed: Callable[[], None] = lambda: None) -> None:
        super().__init__(asker)
        self._keys_changed = keys_changed

    async def fund(self, caller: Caller, **given: Unpack[w.ToFund]) -> BudgetOutcome[FundAnswer]:
        """Change what a budget has to give."""
        return await self._govern(caller, c.Fund, funding_id=self._asker.ids.new("fnd"), **given)

    async def create_budget(self, caller: Caller, **given: Unpack[w.ToCreateBudget]) -> BudgetOutcome[Budget]:
        """Open a budget of one scope and unit with an allocation."""
        return await self._govern(caller, c.CreateBudget, budget_id=self._asker.ids.new("bud"), **given)

    async def update_budget(self, caller: Caller, **given: Unpack[w.ToUpdateBudget]) -> BudgetOutcome[Budget]:
        """Change what a budget allows."""
        return await self._govern(caller, c.UpdateBudget, **given)

    async def freeze_budget(self, caller: Caller, **given: Unpack[w.ToChangeStatus]) -> BudgetOutcome[Budget]:
        """No new holds, debits or funding; what is held still settles."""
        return await self._govern(caller, c.FreezeBudget, **given)

    async def unfreeze_budget(self, caller: Caller, **given: Unpack[w.ToChangeStatus]) -> BudgetOutcome[Budget]:
        """Undo a freeze."""
        return await self._govern(caller, c.UnfreezeBudget, **given)

    async def close_budget(self, caller: Caller, **given: Unpack[w.ToChangeStatus]) -> BudgetOutcome[Budget]:
        """For good. What is held still settles."""
        return await self._govern(caller, c.CloseBudget, **given)

    async def create_policy(self, caller: Caller, **given: Unpack[w.ToCreatePolicy]) -> BudgetOutcome[Policy]:
        """Make a policy for the scopes of a pattern."""
        return await self._govern(caller, c.CreatePolicy, policy_id=self._asker.ids.new("pol"), **given)

    async def update_policy(self, caller: Caller, **given: Unpack[w.ToUpdatePolicy]) -> BudgetOutcome[Policy]:
        """Change a policy; its pattern stays."""
        return await self._govern(caller, c.UpdatePolicy, **given)

    async def create_tenant(
        self, caller: Caller, *, tenant_id: str, **given: Unpack[w.ToCreateTenant]
    ) -> BudgetOutcome[TenantAnswer]:
        """Root makes a tenant with its defaults; one that is there already stays as it is (`created` tells).

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, then as the decision.
        """
        if (denied := refuse(caller, RIGHTS[c.CreateTenant], tenant_id)) is not None:
            return denied
        if not TENANT_ID.fullmatch(tenant_id) or tenant_id in RESERVED_TENANT_IDS:
            return invalid("tenant_id", f"tenant_id must be {in_words(TENANT_ID)}", reason="charset")
        return await self._govern(caller, c.CreateTenant, tenant_id=tenant_id, **given)

    async def update_tenant(
        self, caller: Caller, *, tenant_id: str, **given: Unpack[w.ToUpdateTenant]
    ) -> BudgetOutcome[TenantAnswer]:
        """Root changes a tenant's defaults, name or status.

        The status CLOSED takes its holds, budgets and keys down with it, in one transaction and for good. Its capacity
        grants stay: `TenancyDesk.delete_tenant` is what ends those, and it closes the tenant for budgets as well.
        Refuses in this order: ACCESS_DENIED, INVALID_STATE (the root tenant would lock everybody out), then as the
        decision.
        """
        if (denied := refuse(caller, RIGHTS[c.UpdateTenant], tenant_id)) is not None:
            return denied
        ends = given.get("status") in (TenantStatus.SUSPENDED, TenantStatus.CLOSED)
        if ends and tenant_id == caller.principal.tenant_id:
            return InvalidState(state="root", message="the root tenant can be neither suspended nor closed")
        outcome = await self._govern(caller, c.UpdateTenant, tenant_id=tenant_id, **given)
        if given.get("status") == TenantStatus.CLOSED:
            self._keys_changed()
        return outcome

    async def close_deleted_tenant(self, tenant_id: str) -> None:
        """A tenant was marked deleted: nothing of its budgets stays open. Harmless when done twice."""
        command = c.UpdateTenant(
            tenant_id=tenant_id,
            origin=Origin(actor_type=ActorType.SYSTEM, request_id=DELETED),
            idempotency_key=f"{UNASKED}{DELETED}",
            status=TenantStatus.CLOSED,
        )
        outcome = await self._asker.ask(command)
        assert not isinstance(outcome, Refusal), outcome
        self._keys_changed()

    async def _govern(
        self, caller: Caller, kind: Callable[..., Any], /, *, idempotency_key: str | None = None, **given: Any
    ) -> BudgetOutcome[Any]:
        """Ask under a key in any case: a turn whose commit was in doubt must know what it has done."""
        key = UNASKED + self._asker.ids.new("req") if idempotency_key is None else idempotency_key
        return await self._ask(caller, kind, idempotency_key=key, **given)
