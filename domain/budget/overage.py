"""How much of an actual is charged when it is more than was held, and what becomes debt (sections 2.5 and 2.7).

The same arithmetic serves a commit (`extra` = actual - estimate) and a direct debit (`extra` = actual, nothing held).
Nothing is changed here. Debt is the part that no budget could fund, not the whole overage (decision 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.budget.records import Budget
from domain.budget.refusals import OverdraftLimitExceeded
from domain.budget.values import OveragePolicy


class Overage(NamedTuple):
    """`charged` of the extra, the same on every budget; of it `debts[i]` is debt on budget i; `capped[i]` marks it."""

    charged: int
    debts: tuple[int, ...]
    capped: tuple[bool, ...]


def settle_overage(budgets: Sequence[Budget], extra: int, policy: OveragePolicy) -> Overage | OverdraftLimitExceeded:
    """`extra` >= 0 under one of the two policies that allow it; REJECT has been answered before.

    ALLOW_IF_AVAILABLE charges what the tightest budget has left. ALLOW_WITH_OVERDRAFT does so only for budgets without
    an overdraft limit and lets the others go into debt, up to their limit: past it the whole settlement is refused.
    """
    assert policy is not OveragePolicy.REJECT, "answered before"
    charged = min([extra, *(max(budget.remaining, 0) for budget in budgets if _cuts(budget, policy))])
    debts = tuple(_deficit(budget, charged, policy) for budget in budgets)
    for budget, deficit in zip(budgets, debts, strict=True):
        # Also without a new deficit: a budget that is past its limit and has nothing left lets nothing more through.
        if not _cuts(budget, policy) and budget.remaining < charged and budget.debt + deficit > budget.overdraft_limit:
            return _over_limit(budget, deficit)
    if charged == extra:
        return Overage(charged, debts, (False,) * len(budgets))
    return Overage(charged, debts, tuple(_cuts(budget, policy) and budget.remaining < extra for budget in budgets))


def _cuts(budget: Budget, policy: OveragePolicy) -> bool:
    """Whether the charge is cut to what this budget has left, because it may not go into debt."""
    return policy is OveragePolicy.ALLOW_IF_AVAILABLE or budget.overdraft_limit == 0


def _deficit(budget: Budget, charged: int, policy: OveragePolicy) -> int:
    """What the budget cannot fund of the charge."""
    return 0 if _cuts(budget, policy) else max(0, charged - max(budget.remaining, 0))


def _over_limit(budget: Budget, deficit: int) -> OverdraftLimitExceeded:
    limit, debt = budget.overdraft_limit, budget.debt
    return OverdraftLimitExceeded(
        scope=budget.scope_path,
        unit=budget.unit,
        debt=debt,
        overdraft_limit=limit,
        deficit=deficit,
        message=f"{deficit} on top of the debt of {debt} would pass the overdraft limit {limit} of {budget.scope_path}",
    )
