"""The client's own ledger of a llm replay: what it was told, added up, and held against what the authority says it has.

It knows the published rules and nothing of how they are kept. It is naive: sums per budget, and one state per hold.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.budget.values import Balance, OveragePolicy
from server.replay.llm_calls import Charged, Held

ONE_END: Final = "I4 a reservation has one end"
CHARGED_ONCE: Final = "I5 a charge is made once"


class State(StrEnum):
    """Of a hold, in the words of the protocol."""

    ACTIVE = "ACTIVE"
    COMMITTED = "COMMITTED"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


@dataclass(slots=True)
class _Hold:
    held: Held
    state: State = State.ACTIVE
    charged: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedHold:
    """A row of the authority's own list."""

    reservation_id: str
    key: str
    state: str
    amount: int
    charged: int | None


class ReplyLedger:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        """What a single reply already showed to be wrong, with the rule in front."""
        self._holds: dict[str, _Hold] = {}
        self._allocated: Counter[str] = Counter()
        self._charged: Counter[str] = Counter()
        """By scope: what commits and debits were told to be charged."""

    # -- what was told -------------------------------------------------------------------------------------------

    def note_allocated(self, scope: str, amount: int) -> None:
        """Another `amount` is there to be spent."""
        self._allocated[scope] += amount

    def note_held(self, held: Held) -> None:
        if held.reservation_id in self._holds:
            self.wrong.append(f"{ONE_END}: {held.reservation_id} was told to two requests")
        self._holds[held.reservation_id] = _Hold(held)

    def note_committed(self, held: Held, actual: int, charged: Charged) -> None:
        self._end(held, State.COMMITTED).charged = charged.amount
        self._judge(held, actual, charged.amount)
        self._charge(held.job.agent.scopes, charged)

    def note_released(self, held: Held) -> None:
        self._end(held, State.RELEASED)

    def note_expired(self, held: Held) -> None:
        """It was told so, or nobody will ever settle it."""
        self._end(held, State.EXPIRED)

    def note_debited(self, scopes: Sequence[str], actual: int, charged: Charged) -> None:
        if not 0 <= charged.amount <= actual:
            self.wrong.append(f"{CHARGED_ONCE}: {charged.amount} charged of {actual} in one debit")
        self._charge(scopes, charged)

    def _end(self, held: Held, state: State) -> _Hold:
        hold = self._holds[held.reservation_id]
        if hold.state is not State.ACTIVE:
            self.wrong.append(f"{ONE_END}: {held.reservation_id} is told {state} after {hold.state}")
        hold.state = state
        return hold

    def _judge(self, held: Held, actual: int, charged: int) -> None:
        """Section 2.5: never more than the actual; less only where an overage may be cut, and then not under the hold."""
        may_be_cut = held.job.agent.kind.overage_policy is not OveragePolicy.REJECT
        least = min(actual, held.amount) if may_be_cut else actual
        if not least <= charged <= actual:
            self.wrong.append(
                f"{CHARGED_ONCE}: {held.reservation_id}: {charged} charged of {actual}, {held.amount} held"
            )

    def _charge(self, scopes: Sequence[str], charged: Charged) -> None:
        for scope in scopes:
            self._charged[scope] += charged.amount
        told = [balance.scope_path for balance in charged.balances]
        if told != list(scopes):
            self.wrong.append(f"answers: a charge to {', '.join(scopes)} tells of {', '.join(told) or 'nothing'}")

    # -- audits --------------------------------------------------------------------------------------------------

    def audit_balances(self, balances: Iterable[Balance]) -> list[str]:
        """I2, I3, I5 of balances that were read while nothing was under way and every hold that is over had ended."""
        found = {balance.scope_path: balance for balance in balances}
        held = self._held()
        wrong = [f"answers: the budget {scope} is not shown" for scope in sorted(self._allocated.keys() - found.keys())]
        for scope, balance in sorted(found.items()):
            wrong += refuse_impossible(balance)
            if balance.reserved != held[scope]:
                wrong.append(
                    f"I2 reserved is the sum of the active holds: {scope}: {balance.reserved}, {held[scope]} held"
                )
            if balance.spent + balance.debt != self._charged[scope]:
                spent = f"{balance.spent} spent and {balance.debt} owed, {self._charged[scope]} charged as told"
                wrong.append(f"{CHARGED_ONCE}: {scope}: {spent}")
            if balance.allocated != self._allocated[scope]:
                wrong.append(f"answers: {scope} has {balance.allocated} allocated, {self._allocated[scope]} were given")
        return wrong

    def audit_holds(self, listed: Iterable[ListedHold]) -> list[str]:
        """I4, I5 of the authority's whole list: every hold that was told is there once, ended as told, and no other."""
        rows: dict[str, list[ListedHold]] = defaultdict(list)
        for row in listed:
            rows[row.reservation_id].append(row)
        wrong = [
            f"{ONE_END}: {number} is listed and was never told" for number in sorted(rows.keys() - self._holds.keys())
        ]
        for reservation_id, hold in self._holds.items():
            wrong += [f"{ONE_END}: {text}" for text in _differences(hold, rows.get(reservation_id, []))]
        keys = Counter(row.key for found in rows.values() for row in found)
        wrong += [f"{CHARGED_ONCE}: {times} holds under the key {key}" for key, times in keys.items() if times > 1]
        return wrong

    @property
    def charged(self) -> int:
        """Tokens, of all commits and debits: each is charged to the tenant's budget and to one agent's."""
        return sum(self._charged.values()) // 2

    def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for hold in self._holds.values():
            if hold.state is State.ACTIVE:
                for scope in hold.held.job.agent.scopes:
                    held[scope] += hold.held.amount
        return held


def refuse_impossible(balance: Balance) -> list[str]:
    """I3, and that no more was promised than there is: a budget nobody took from is short by no more than may be owed."""
    amounts = (balance.allocated, balance.reserved, balance.spent, balance.debt, balance.overdraft_limit)
    wrong = [f"I3 no amount is negative: {balance.scope_path}: {amounts}"] if min(amounts) < 0 else []
    if balance.remaining < -balance.overdraft_limit or balance.debt > balance.overdraft_limit:
        what = f"{balance.remaining} remain and {balance.debt} are owed, {balance.overdraft_limit} may be"
        wrong.append(f"I3 no more is promised than there is: {balance.scope_path}: {what}")
    return wrong


def _differences(hold: _Hold, rows: Sequence[ListedHold]) -> list[str]:
    held = hold.held
    if len(rows) != 1:
        return [f"{held.reservation_id} is listed {len(rows)} times"]
    expected = (hold.state, held.amount, hold.charged)
    found = (rows[0].state, rows[0].amount, rows[0].charged)
    return [] if found == expected else [f"{held.reservation_id} is {found}, told {expected}"]
