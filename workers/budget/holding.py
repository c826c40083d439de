"""The desk's runtime half: reserve, evaluate, commit, release, extend, debit (sections 1 to 4).

Every method refuses ACCESS_DENIED for a missing permission first, then text that cannot be kept as INVALID_INPUT, then
whatever the decision of the same name refuses. What they take is in `wanted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from domain.budget.answers import CommitAnswer, DebitAnswer, EvaluateAnswer, ExtendAnswer, ReleaseAnswer, ReserveAnswer
from domain.budget.commands import AnyCommand, Command, Commit, Debit, Evaluate, Extend, Release, Reserve
from domain.budget.repeats import BudgetOutcome
from domain.budget.shapes import RESERVATION_ID_MAX, check_length, invalid
from domain.outcomes import NotFound, Refusal
from storage.budget.books import read_owners
from workers.budget import wanted as w
from workers.budget.asking import BudgetAsker
from workers.budget.rights import RIGHTS, origin_of, refuse, scope_filter_of
from workers.budget.texts import is_kept, refuse_texts
from workers.request import Caller

Made = TypeVar("Made", bound=Command)


class AskingDesk:
    """What both halves of the desk do: authority, command, ask."""

    def __init__(self, asker: BudgetAsker) -> None:
        self._asker = asker

    async def ask(self, caller: Caller, command: AnyCommand) -> BudgetOutcome[Any]:
        """Ask what somebody else has put together, with `rights.origin_of` and `rights.scope_filter_of`."""
        if (denied := refuse(caller, RIGHTS[type(command)], command.tenant_id)) is not None:
            return denied
        assert command.scope_filter == scope_filter_of(caller, command.tenant_id), "the caller's filter goes with it"
        return refuse_texts(command) or await self._asker.ask(command)

    async def _ask(
        self,
        caller: Caller,
        kind: Callable[..., Made],
        /,
        *,
        tenant_id: str | None = None,
        as_admin: bool = False,
        **given: Any,
    ) -> BudgetOutcome[Any]:
        """Make a command of this kind and ask it: in the caller's own tenant unless another one is named."""
        tenant = caller.principal.tenant_id if tenant_id is None else tenant_id
        assert isinstance(kind, type), "a kind of command"
        if (denied := refuse(caller, RIGHTS[kind], tenant, as_admin=as_admin)) is not None:
            return denied
        if not is_kept(tenant):
            return invalid("tenant_id", "no tenant can be called so", reason="charset")
        try:
            command: Any = kind(
                tenant_id=tenant,
                origin=origin_of(caller, tenant, kind=kind, as_admin=as_admin),
                scope_filter=scope_filter_of(caller, tenant),
                **given,
            )
        except (ValueError, RecursionError):  # its fingerprint: infinite numbers, or no end of nesting
            return invalid("metadata", "the request holds a number or a nesting that JSON cannot carry", reason="json")
        return refuse_texts(command) or await self._asker.ask(command)


class HoldingDesk(AskingDesk):
    async def reserve(self, caller: Caller, **given: Unpack[w.ToReserve]) -> BudgetOutcome[ReserveAnswer]:
        """Hold an estimate on all budgets of the subject, or with `dry_run` tell what would come of it."""
        return await self._ask(caller, Reserve, reservation_id=self._asker.ids.new("rsv"), **given)

    async def evaluate(self, caller: Caller, **given: Unpack[w.ToEvaluate]) -> BudgetOutcome[EvaluateAnswer]:
        """Tell whether a reserve would hold now (the wire's `decide`)."""
        return await self._ask(caller, Evaluate, **given)

    async def commit(self, caller: Caller, **given: Unpack[w.ToCommit]) -> BudgetOutcome[CommitAnswer]:
        """Settle a hold with what was really used."""
        return await self._ask(caller, Commit, **given)

    async def release(
        self,
        caller: Caller,
        *,
        reservation_id: str,
        idempotency_key: str,
        reason: str | None = None,
        as_admin: bool = False,
    ) -> BudgetOutcome[ReleaseAnswer]:
        """Give a hold back unused. `as_admin`: root, for whichever tenant it is of, which leaves an audit entry."""
        tenant_id = None
        if as_admin:
            if (denied := refuse(caller, RIGHTS[Release], "", as_admin=True)) is not None:
                return denied
            owner = await self._owner(reservation_id)
            if isinstance(owner, Refusal):
                return owner
            tenant_id = owner
        return await self._ask(
            caller,
            Release,
            tenant_id=tenant_id,
            as_admin=as_admin,
            reservation_id=reservation_id,
            idempotency_key=idempotency_key,
            reason=reason,
        )

    async def extend(self, caller: Caller, **given: Unpack[w.ToExtend]) -> BudgetOutcome[ExtendAnswer]:
        """Move a hold's expiry, counted from where it stands."""
        return await self._ask(caller, Extend, **given)

    async def debit(self, caller: Caller, **given: Unpack[w.ToDebit]) -> BudgetOutcome[DebitAnswer]:
        """Spend without a hold (the wire's `POST /v1/events`)."""
        return await self._ask(caller, Debit, debit_id=self._asker.ids.new("dbt"), **given)

    async def _owner(self, reservation_id: str) -> str | Refusal:
        """Whose a reservation is. Refuses INVALID_INPUT, NOT_FOUND."""
        if not is_kept(reservation_id):
            return invalid("reservation_id", "no reservation can be called so", reason="charset")
        shape = check_length(reservation_id, field="reservation_id", least=1, most=RESERVATION_ID_MAX)
        if shape is not None:
            return shape
        async with self._asker.database.acquire() as connection:
            owners = await read_owners(connection, [reservation_id])
        if reservation_id not in owners:
            return NotFound(field="reservation_id", message=f"no such reservation: {reservation_id}")
        return owners[reservation_id]
