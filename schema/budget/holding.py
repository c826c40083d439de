"""Holding and spending: reserve, commit, release, extend, debit, and asking beforehand."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry

from domain.amounts import Unit
from domain.budget import answers
from domain.budget.values import Decision, OveragePolicy
from schema.batches import each, outcomes_of
from schema.budget.answers import ask
from schema.budget.refusals import BUDGET_REFUSALS
from schema.budget.values import (
    ActionInput,
    AmountInput,
    Balance,
    Caps,
    MetricsInput,
    SubjectInput,
    balances,
    given_values,
    show_caps,
)
from schema.inputs import INPUT
from schema.refusals import answers_with, result
from schema.scalars import Int64, JSONObject, Millis, int64, millis, optional_id
from workers.budget.desk import BudgetDesk

# -- types -------------------------------------------------------------------------------------------------------------


@strawberry.type
class BudgetHold:
    """What a reserve came to. A dry run has no id and no expiry, and may be a DENY."""

    decision: Decision
    reservation_id: strawberry.ID | None
    unit: Unit
    reserved: Int64 | None
    scope: str = strawberry.field(description="The subject's own path.")
    affected_scopes: list[str]
    decided_at: Millis
    expires_at: Millis | None
    remaining_ttl_ms: Int64 | None = strawberry.field(description="As of this answer, also in a replay.")
    grace_ms: Int64 | None
    overage_policy: OveragePolicy | None
    caps: Caps | None
    balances: list[Balance] = strawberry.field(description="From the widest scope down, with the hold.")
    reason_code: str | None = strawberry.field(description="Why a DENY.")
    retry_after_ms: Int64 | None

    @classmethod
    def of(cls, answer: answers.ReserveAnswer) -> BudgetHold:
        return cls(
            decision=answer.decision,
            reservation_id=optional_id(answer.reservation_id),
            unit=answer.unit,
            reserved=int64(answer.reserved),
            scope=answer.scope_path,
            affected_scopes=list(answer.affected_scopes),
            decided_at=Millis(answer.decided_at),
            expires_at=millis(answer.expires_at),
            remaining_ttl_ms=int64(answer.remaining_ttl_ms),
            grace_ms=int64(answer.grace_ms),
            overage_policy=answer.overage_policy,
            caps=show_caps(answer.caps),
            balances=balances(answer.balances),
            reason_code=answer.reason_code,
            retry_after_ms=int64(answer.retry_after_ms),
        )


@strawberry.type
class BudgetVerdict:
    """Whether a reserve would hold. Nothing is held."""

    decision: Decision
    affected_scopes: list[str]
    decided_at: Millis
    caps: Caps | None
    reason_code: str | None = strawberry.field(description="Why a DENY.")
    retry_after_ms: Int64 | None

    @classmethod
    def of(cls, answer: answers.EvaluateAnswer) -> BudgetVerdict:
        return cls(
            decision=answer.decision,
            affected_scopes=list(answer.affected_scopes),
            decided_at=Millis(answer.decided_at),
            caps=show_caps(answer.caps),
            reason_code=answer.reason_code,
            retry_after_ms=int64(answer.retry_after_ms),
        )


@strawberry.type
class BudgetCommit:
    """A hold that was settled."""

    reservation_id: strawberry.ID
    unit: Unit
    charged: Int64 = strawberry.field(description="Less than the actual when the overage was cut.")
    released: Int64 | None = strawberry.field(description="What came back of the hold, if anything did.")
    finalized_at: Millis
    balances: list[Balance]

    @classmethod
    def of(cls, answer: answers.CommitAnswer) -> BudgetCommit:
        return cls(
            reservation_id=strawberry.ID(answer.reservation_id),
            unit=answer.unit,
            charged=Int64(answer.charged),
            released=int64(answer.released),
            finalized_at=Millis(answer.finalized_at),
            balances=balances(answer.balances),
        )


@strawberry.type
class BudgetRelease:
    """A hold that was given back unused."""

    reservation_id: strawberry.ID
    unit: Unit
    released: Int64
    finalized_at: Millis
    balances: list[Balance]

    @classmethod
    def of(cls, answer: answers.ReleaseAnswer) -> BudgetRelease:
        return cls(
            reservation_id=strawberry.ID(answer.reservation_id),
            unit=answer.unit,
            released=Int64(answer.released),
            finalized_at=Millis(answer.finalized_at),
            balances=balances(answer.balances),
        )


@strawberry.type
class BudgetExtension:
    """A hold whose expiry was moved."""

    reservation_id: strawberry.ID
    expires_at: Millis
    remaining_ttl_ms: Int64 = strawberry.field(description="As of this answer, also in a replay.")
    extensions_used: Int64
    decided_at: Millis
    balances: list[Balance]

    @classmethod
    def of(cls, answer: answers.ExtendAnswer) -> BudgetExtension:
        return cls(
            reservation_id=strawberry.ID(answer.reservation_id),
            expires_at=Millis(answer.expires_at),
            remaining_ttl_ms=Int64(answer.remaining_ttl_ms),
            extensions_used=Int64(answer.extensions_used),
            decided_at=Millis(answer.decided_at),
            balances=balances(answer.balances),
        )


@strawberry.type
class BudgetDebit:
    """A spending without a hold."""

    id: strawberry.ID
    unit: Unit
    actual: Int64
    charged: Int64 = strawberry.field(description="Less than `actual` when it was cut to what remained.")
    decided_at: Millis
    balances: list[Balance]

    @classmethod
    def of(cls, answer: answers.DebitAnswer) -> BudgetDebit:
        return cls(
            id=strawberry.ID(answer.debit_id),
            unit=answer.unit,
            actual=Int64(answer.actual),
            charged=Int64(answer.charged),
            decided_at=Millis(answer.decided_at),
            balances=balances(answer.balances),
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


@strawberry.input
class ReserveBudgetInput:
    """Holds an estimate on all budgets of the subject; with `dryRun` it is only told what would come of it."""

    idempotency_key: str
    subject: SubjectInput
    action: ActionInput
    estimate: AmountInput
    ttl_ms: Int64 | None = None
    grace_ms: Int64 | None = strawberry.field(name="gracePeriodMs", default=None)
    overage_policy: OveragePolicy | None = None
    dry_run: bool = False
    metadata: JSONObject | None = None


@strawberry.input
class ReserveBudgetsInput:
    """Up to 256 holds, each with an idempotency key of its own."""

    reservations: list[ReserveBudgetInput]


@strawberry.input
class DecideInput:
    """As for reserveBudget, to ask whether it would hold."""

    idempotency_key: str
    subject: SubjectInput
    action: ActionInput
    estimate: AmountInput
    metadata: JSONObject | None = None


@strawberry.input
class CommitBudgetInput:
    """Settles a hold with what was really used."""

    reservation_id: strawberry.ID
    idempotency_key: str
    actual: AmountInput
    metrics: MetricsInput | None = None
    metadata: JSONObject | None = None


@strawberry.input
class ReleaseBudgetInput:
    """Gives a hold back unused. `asAdmin`: for root, whichever tenant's it is."""

    reservation_id: strawberry.ID
    idempotency_key: str
    reason: str | None = None
    as_admin: bool = False


@strawberry.input
class ExtendBudgetInput:
    """Moves a hold's expiry, counted from where it stands."""

    reservation_id: strawberry.ID
    idempotency_key: str
    extend_by_ms: Int64
    metadata: JSONObject | None = None


@strawberry.input
class DebitBudgetInput:
    """Spends without a hold. `clientTimeMs` is kept as it was sent."""

    idempotency_key: str
    subject: SubjectInput
    action: ActionInput
    actual: AmountInput
    overage_policy: OveragePolicy | None = None
    metrics: MetricsInput | None = None
    client_time_ms: Int64 | None = None
    metadata: JSONObject | None = None


# -- results -----------------------------------------------------------------------------------------------------------

DecideResult = result("DecideResult", BudgetVerdict, *BUDGET_REFUSALS)
ReserveBudgetResult = result("ReserveBudgetResult", BudgetHold, *BUDGET_REFUSALS)


@strawberry.type
class ReservedBudgets:
    """What came of each hold, in the order in which they were asked for."""

    outcomes: Any = outcomes_of(ReserveBudgetResult)


ReserveBudgetsResult = result("ReserveBudgetsResult", ReservedBudgets)
CommitBudgetResult = result("CommitBudgetResult", BudgetCommit, *BUDGET_REFUSALS)
ReleaseBudgetResult = result("ReleaseBudgetResult", BudgetRelease, *BUDGET_REFUSALS)
ExtendBudgetResult = result("ExtendBudgetResult", BudgetExtension, *BUDGET_REFUSALS)
DebitBudgetResult = result("DebitBudgetResult", BudgetDebit, *BUDGET_REFUSALS)


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class DecideQuery:
    @answers_with(DecideResult)
    async def decide(self, wanted: Annotated[DecideInput, INPUT]) -> Any:
        """Whether reserveBudget would hold now. A DENY is an answer, no refusal."""
        return await ask(BudgetDesk.evaluate, BudgetVerdict.of, **given_values(wanted))


# -- mutation ----------------------------------------------------------------------------------------------------------


@strawberry.type
class HoldingMutation:
    @answers_with(ReserveBudgetResult)
    async def reserve_budget(self, wanted: Annotated[ReserveBudgetInput, INPUT]) -> Any:
        """Holds before work begins. A retry with the same idempotency key gets the same answer, over either edge."""
        return await _reserve(wanted)

    @answers_with(ReserveBudgetsResult)
    async def reserve_budgets(self, wanted: Annotated[ReserveBudgetsInput, INPUT]) -> Any:
        """Each is decided by itself, after those before it; one that failed is null, with an error beside the data, and
        what it came to is told to a retry."""
        return await each(wanted.reservations, _reserve, ReservedBudgets, field="reservations")

    @answers_with(CommitBudgetResult)
    async def commit_budget(self, wanted: Annotated[CommitBudgetInput, INPUT]) -> Any:
        """Charges what was used and gives the rest of the hold back, until its grace is over."""
        return await ask(BudgetDesk.commit, BudgetCommit.of, **given_values(wanted))

    @answers_with(ReleaseBudgetResult)
    async def release_budget(self, wanted: Annotated[ReleaseBudgetInput, INPUT]) -> Any:
        """Gives the whole hold back."""
        return await ask(BudgetDesk.release, BudgetRelease.of, **given_values(wanted))

    @answers_with(ExtendBudgetResult)
    async def extend_budget(self, wanted: Annotated[ExtendBudgetInput, INPUT]) -> Any:
        """Gives a hold more time, as often as its tenant allows."""
        return await ask(BudgetDesk.extend, BudgetExtension.of, **given_values(wanted))

    @answers_with(DebitBudgetResult)
    async def debit_budget(self, wanted: Annotated[DebitBudgetInput, INPUT]) -> Any:
        """Charges what was used without having been held."""
        return await ask(BudgetDesk.debit, BudgetDebit.of, **given_values(wanted))


async def _reserve(wanted: ReserveBudgetInput) -> Any:
    return await ask(BudgetDesk.reserve, BudgetHold.of, **given_values(wanted))
