"""What a tenant's actor keeps between turns, and how it is completed from the database before a turn decides.

All of it is good as long as its version is the head's when the turn is written. Policies are here whole, and so are
budgets unless the tenant has very many; reservations as they are named. `unread_due_at` stands for all those that are not
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from domain.budget.commands import AnyCommand, Extend, KeyedCommand
from domain.budget.decisions import reads_of
from domain.budget.records import TenantKey
from domain.budget.replay import RememberedAnswer
from domain.budget.settlement import EXPIRIES_MAX
from domain.budget.state import BudgetState
from domain.replay import RequestKey
from domain.terms import MINUTE_MS
from storage.budget.answers import reservations_named
from storage.budget.books import (
    Head,
    Locked,
    read_active,
    read_budgets,
    read_overdue,
    read_owners,
    read_policies,
    read_reservations,
    read_some_budgets,
)
from storage.database import AnyConnection
from storage.identity import lock_tenant, read_live_keys
from workers.actor import Actor
from workers.turns import Work

BUDGETS_WHOLE: Final = 1_000
"""A tenant with at most so many budgets has all of them in memory: some hundred kilobytes, read once in some 10 ms."""
SCOPES_MAX: Final = 10_000
"""Scopes that a larger tenant's books may cover before they are read anew."""
HOLDS_MAX: Final = 20_000
"""Reservations in memory beyond which a tenant's books are dropped: about two kilobytes each."""
SETTLED_MAX: Final = 8
"""Settled ones beside as many as are active: only a late retry asks about them, and there may be thousands of tenants. Dropping
them costs a look at every active one, so it waits until there are as many of each."""


@dataclass(slots=True)
class TenantBooks:
    """One tenant's books in memory."""

    state: BudgetState
    outbox_seq: int = 0
    next_expiry_at: int | None = None
    """As the head has it."""
    updated_at: int | None = None
    unread_due_at: int | None = None
    """No reservation that is not in `state` is over before it; None: there is none."""
    has_all_budgets: bool = False
    scopes: set[str] = field(default_factory=set)
    """Whose budgets are all in `state`, where not all budgets are."""
    is_new: bool = False
    trim_at: int = SETTLED_MAX

    @classmethod
    def of(cls, head: Head, state: BudgetState) -> TenantBooks:
        return cls(
            state=state,
            outbox_seq=head.outbox_seq,
            next_expiry_at=head.next_expiry_at,
            updated_at=head.updated_at,
            unread_due_at=head.next_expiry_at,
        )

    def now(self, instant: int) -> int:
        """The instant of a turn: never behind what was decided before."""
        return max(instant, self.state.tenant.clock_at)

    def covers(self, scope: str) -> bool:
        return self.has_all_budgets or scope in self.scopes

    def due_at(self) -> int | None:
        """The first instant at which something may be due."""
        unread, held = self.unread_due_at, self.state.next_expiry_at()
        if unread is None or held is None:
            return held if unread is None else unread
        return min(unread, held)

    def head_due_at(self) -> int | None:
        """What the head is to say of it. The column has an index, so it is left as it is while it is early enough: a
        hold that ends well before its time moves nothing there."""
        due_at, said, now = self.due_at(), self.next_expiry_at, self.state.tenant.clock_at
        is_early_enough = said is not None and said > now and (due_at is None or due_at >= said)
        return said if is_early_enough else due_at

    def valid_ms(self, commands: Iterable[AnyCommand], now: int, *, most: int) -> int:
        """For how long, up to `most`, these commands come to the same as they do at `now`, but for the instants told.

        Until a hold is over, an extension would come too late, a policy begins or ends, or a minute of calls is over.
        """
        state = self.state
        extended = (state.reservations.get(each.reservation_id) for each in commands if isinstance(each, Extend))
        ends = [self.due_at(), *(held.expires_at + 1 for held in extended if held is not None)]
        for policy in state.policies.values():
            ends += [policy.effective_from_at, policy.effective_until_at]
            if policy.rate_limits is not None:
                ends.append(now - now % MINUTE_MS + MINUTE_MS)
        return min((end - now for end in ends if end is not None and end > now), default=most)

    def trim(self) -> bool:
        """Drop what only a late retry can ask about; False when the rest is still too much to keep."""
        state = self.state
        state.remembered.clear()
        state.foreign_reservations.clear()
        if len(state.reservations) > self.trim_at:
            state.forget_settled(answered_before=0)
            self.trim_at = 2 * len(state.reservations) + SETTLED_MAX
        return len(state.reservations) <= HOLDS_MAX and len(self.scopes) <= SCOPES_MAX


BudgetActor: TypeAlias = Actor[TenantBooks]


@dataclass(slots=True)
class _Wanted:
    """What the commands of a batch name, by tenant, and the memory lacks."""

    scopes: set[tuple[str, str]] = field(default_factory=set)
    reservations: set[tuple[str, str]] = field(default_factory=set)


class Lookup(Protocol):
    """What was answered under request keys, as far as it is known."""

    def get(self, key: RequestKey) -> RememberedAnswer | None: ...


def has_what(books: TenantBooks, commands: Iterable[AnyCommand], answers: Lookup) -> bool:
    """Whether nothing need be read to decide these commands, given what is remembered of them."""
    wanted = _Wanted()
    is_all = _want(wanted, books, commands, answers)
    return not (is_all or wanted.scopes or wanted.reservations)


async def complete(connection: AnyConnection, work: Work, locked: Locked, instant: int) -> None:
    """See to it that every actor's books have what its commands need; None where there is no such tenant."""
    await _renew(connection, [actor for actor, _ in work], locked)
    wanted = _Wanted()
    shelf: dict[str, TenantBooks] = {actor.key: actor.state for actor, _ in work if actor.state is not None}
    for actor, asks in work:
        if (books := shelf.get(actor.key)) is None:
            continue
        if _want(wanted, books, [ask.command for ask in asks], locked.remembered):
            await _read_whole(connection, books)
        await _read_overdue(connection, books, books.now(instant), wanted)
    await _read_reservations(connection, shelf, wanted)
    await _read_budgets(connection, shelf, wanted)


async def _renew(connection: AnyConnection, actors: Iterable[BudgetActor], locked: Locked) -> None:
    """New books for every actor that has none, or whose own are not the ones under the lock.

    While nodes take turns on a tenant, its budgets are not read each time, but only those that are named.
    """
    stale: dict[str, BudgetActor] = {}
    contested = set()
    for actor in actors:
        head = locked.heads.get(actor.key)
        if head is None:
            actor.state = None
        elif actor.state is None or actor.state.state.tenant.version != head.tenant.version:
            stale[actor.key] = actor
            if actor.state is not None:
                contested |= {actor.key} if actor.is_cautious else set()
                actor.be_cautious()
    if not stale:
        return
    policies, windows = await read_policies(connection, list(stale))
    for tenant_id, actor in stale.items():
        head = locked.heads[tenant_id]
        budgets, has_all = [], False
        if tenant_id not in contested:
            budgets = await read_some_budgets(connection, tenant_id, limit=BUDGETS_WHOLE + 1)
            has_all = len(budgets) <= BUDGETS_WHOLE
        state = BudgetState(
            head.tenant,
            budgets if has_all else (),
            policies=policies.get(tenant_id, ()),
            rate_windows=windows.get(tenant_id, ()),
        )
        actor.state = TenantBooks.of(head, state)
        actor.state.has_all_budgets = has_all


def _want(wanted: _Wanted, books: TenantBooks, commands: Iterable[AnyCommand], remembered: Lookup) -> bool:
    """Note what is wanted; whether it is all that the tenant has."""
    state, is_all = books.state, False
    tenant_id = state.tenant.tenant_id
    for command in commands:
        reads = reads_of(command)
        is_all |= reads.whole_tenant
        wanted.scopes.update((tenant_id, scope) for scope in reads.scopes if not books.covers(scope))
        named = {reads.reservation_id} - {None}
        if isinstance(command, KeyedCommand) and (known := remembered.get(command.request_key)) is not None:
            state.remembered[command.request_key] = known
            named |= reservations_named([known])
        wanted.reservations.update((tenant_id, each) for each in named if each and each not in state.reservations)
    return is_all


async def _read_whole(connection: AnyConnection, books: TenantBooks) -> None:
    """All budgets, active reservations and live keys: what closing a tenant takes down. Nobody makes a key meanwhile."""
    state = books.state
    tenant_id = state.tenant.tenant_id
    if not books.has_all_budgets:
        for budget in await read_some_budgets(connection, tenant_id, limit=None):
            state.admit_budget(budget)
        books.has_all_budgets = True
    for reservation in await read_active(connection, tenant_id):
        state.admit_reservation(reservation)
    state.is_complete = True
    await lock_tenant(connection, tenant_id)
    keys = await read_live_keys(connection, tenant_id)
    state.live_keys = [TenantKey(key_id=key_id, name=name) for key_id, name in keys]


async def _read_overdue(connection: AnyConnection, books: TenantBooks, now: int, wanted: _Wanted) -> None:
    """The reservations that are not in memory and over at `now`, as many as one turn gives back."""
    if books.unread_due_at is None or now < books.unread_due_at:
        return
    tenant_id = books.state.tenant.tenant_id
    overdue, books.unread_due_at = await read_overdue(connection, tenant_id, now=now, limit=EXPIRIES_MAX)
    for reservation in overdue:
        books.state.admit_reservation(reservation)
        scopes = reservation.budgeted_scopes
        wanted.scopes.update((tenant_id, scope) for scope in scopes if not books.covers(scope))


async def _read_reservations(connection: AnyConnection, shelf: Mapping[str, TenantBooks], wanted: _Wanted) -> None:
    """The named ones with their budgets; of those that the tenant does not have, which are another's (check 10)."""
    if not wanted.reservations:
        return
    found = await read_reservations(connection, sorted(wanted.reservations))
    for tenant_id, reservation in found:
        here = shelf[tenant_id]
        here.state.admit_reservation(reservation)
        wanted.scopes.update((tenant_id, scope) for scope in reservation.budgeted_scopes if not here.covers(scope))
    absent = wanted.reservations - {(tenant_id, reservation.reservation_id) for tenant_id, reservation in found}
    if absent:
        owners = await read_owners(connection, {reservation_id for _, reservation_id in absent})
        for tenant_id, reservation_id in absent:
            if reservation_id in owners:
                shelf[tenant_id].state.foreign_reservations.add(reservation_id)


async def _read_budgets(connection: AnyConnection, shelf: Mapping[str, TenantBooks], wanted: _Wanted) -> None:
    if not wanted.scopes:
        return
    for tenant_id, budget in await read_budgets(connection, sorted(wanted.scopes)):
        shelf[tenant_id].state.admit_budget(budget)
    for tenant_id, scope in wanted.scopes:
        shelf[tenant_id].scopes.add(scope)
