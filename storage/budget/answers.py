"""Remembered answers of budget commands (`budget_answer`): encoded for the flush, decoded to exactly what they were.

Written by the tenant's turn only; removed by retention. Which type an answer has follows from its operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from domain.budget.answers import (
    CommitAnswer,
    DebitAnswer,
    EvaluateAnswer,
    ExtendAnswer,
    FundAnswer,
    ReleaseAnswer,
    ReserveAnswer,
)
from domain.budget.commands import (
    CloseBudget,
    Commit,
    CreateBudget,
    CreatePolicy,
    CreateTenant,
    Debit,
    Evaluate,
    Extend,
    FreezeBudget,
    Fund,
    Release,
    Reserve,
    UnfreezeBudget,
    UpdateBudget,
    UpdatePolicy,
    UpdateTenant,
)
from domain.budget.records import Budget, Policy
from domain.budget.replay import ANSWERS_KEPT_MS, SETTLEMENTS_KEPT_MS, RememberedAnswer
from domain.budget.tenants import TenantAnswer
from domain.replay import RequestKey
from storage.database import AnyConnection, affected

ANSWERS: Final[Mapping[str, type]] = {
    Reserve.operation: ReserveAnswer,
    Evaluate.operation: EvaluateAnswer,
    Commit.operation: CommitAnswer,
    Release.operation: ReleaseAnswer,
    Extend.operation: ExtendAnswer,
    Debit.operation: DebitAnswer,
    Fund.operation: FundAnswer,
    CreateBudget.operation: Budget,
    UpdateBudget.operation: Budget,
    FreezeBudget.operation: Budget,
    UnfreezeBudget.operation: Budget,
    CloseBudget.operation: Budget,
    CreatePolicy.operation: Policy,
    UpdatePolicy.operation: Policy,
    CreateTenant.operation: TenantAnswer,
    UpdateTenant.operation: TenantAnswer,
}
"""Operation to the type of its answers; an operation about one reservation has its id behind a slash."""


def answer_row(key: RequestKey, remembered: RememberedAnswer) -> dict[str, Any]:
    """The row as a flush takes it."""
    return {
        "tenant_id": key.owner,
        "operation": key.operation,
        "idempotency_key": key.idempotency_key,
        "fingerprint": f"\\x{remembered.fingerprint.hex()}",
        "answer": remembered.answer,
        "answered_at": remembered.answered_at,
        "forget_at": _forget_at(key, remembered.answered_at),
    }


def _forget_at(key: RequestKey, answered_at: int) -> int | None:
    """Those to debits stay: a late retry of one must not be charged twice (section 4.4)."""
    operation = key.operation.partition("/")[0]
    if operation == Debit.operation:
        return None
    is_settlement = operation in (Commit.operation, Release.operation)
    return answered_at + (SETTLEMENTS_KEPT_MS if is_settlement else ANSWERS_KEPT_MS)


def answer_of(row: Mapping[str, Any]) -> tuple[RequestKey, RememberedAnswer]:
    """From a row as JSON has it."""
    key = RequestKey(row["tenant_id"], row["operation"], row["idempotency_key"])
    kind = ANSWERS[key.operation.partition("/")[0]]
    remembered = RememberedAnswer(
        fingerprint=bytes.fromhex(row["fingerprint"].removeprefix("\\x")),
        answer=msgspec.convert(row["answer"], kind),
        answered_at=row["answered_at"],
    )
    return key, remembered


_FORGET: Final = """
delete from budget_answer where (tenant_id, operation, idempotency_key) in (
    select tenant_id, operation, idempotency_key from budget_answer where forget_at <= $1 order by forget_at limit $2
)
"""


async def forget_answers(connection: AnyConnection, *, now: int, limit: int) -> int:
    """Forget up to `limit` answers whose time has come."""
    return affected(await connection.execute(_FORGET, now, limit))


def reservations_named(remembered: Iterable[RememberedAnswer]) -> set[str]:
    """The reservations whose remaining lifetime a replay tells anew."""
    answers = (each.answer for each in remembered)
    named = (answer.reservation_id for answer in answers if isinstance(answer, ReserveAnswer | ExtendAnswer))
    return {reservation_id for reservation_id in named if reservation_id is not None}
