"""The books of the naive model: it imports nothing of ours.

It is slow and obvious on purpose. No balance is stored: allocated, spent and debt are sums over a journal of every change,
reserved is a sum over the holds that are active. Amounts are bare integers, units, policies and statuses bare words.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

MOST = 2**63 - 1
LEAST = -(2**63)
THRESHOLDS = [Fraction(8, 10), Fraction(95, 100), Fraction(1)]

Ledger = tuple[str, str]
"""(scope path, unit)."""


class Refused(Exception):  # noqa: N818 - a refusal is not an error
    def __init__(self, code: str, scope: str | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.scope = scope


class NaiveBooks:
    def __init__(self, now: int) -> None:
        self.now = now
        self.status = "ACTIVE"
        self.journal: list[tuple[Ledger, str, int]] = []
        self.ledgers: dict[Ledger, dict[str, Any]] = {}
        self.holds: dict[str, dict[str, Any]] = {}
        self.memory: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}
        self.told: list[tuple[Any, ...]] = []

    # -- what can be read ----------------------------------------------------------------------------------------

    def column(self, ledger: Ledger, column: str) -> int:
        if column == "reserved":
            return sum(
                hold["estimate"]
                for hold in self.holds.values()
                if hold["status"] == "ACTIVE" and hold["unit"] == ledger[1] and ledger[0] in hold["scopes"]
            )
        return sum(amount for where, what, amount in self.journal if where == ledger and what == column)

    def remaining(self, ledger: Ledger) -> int:
        used = sum(self.column(ledger, column) for column in ("spent", "reserved", "debt"))
        return self.column(ledger, "allocated") - used

    def over(self, ledger: Ledger) -> bool:
        row = self.ledgers[ledger]
        return bool(row["capped"]) or self.column(ledger, "debt") > row["limit"]

    def balances(self) -> dict[Ledger, tuple[Any, ...]]:
        columns = ("allocated", "reserved", "spent", "debt")
        return {
            ledger: (*(self.column(ledger, column) for column in columns), self.remaining(ledger), self.over(ledger))
            for ledger in self.ledgers
        }

    # -- transitions ---------------------------------------------------------------------------------------------

    def marks(self) -> dict[Ledger, tuple[int, bool, list[bool]]]:
        return {ledger: (self.remaining(ledger), self.over(ledger), self.reached(ledger)) for ledger in self.ledgers}

    def reached(self, ledger: Ledger) -> list[bool]:
        used = self.column(ledger, "spent") + self.column(ledger, "reserved")
        allocated = self.column(ledger, "allocated")
        if allocated == 0:
            return [used > 0 for _ in THRESHOLDS]
        return [used > 0 and Fraction(used, allocated) >= threshold for threshold in THRESHOLDS]

    def compare(self, before: dict[Ledger, tuple[int, bool, list[bool]]]) -> None:
        for ledger, (remaining, over, reached) in before.items():
            if over != self.over(ledger):
                self.told.append((f"budget.over_limit_{'exited' if over else 'entered'}", ledger[0]))
            for threshold, was, now in zip(THRESHOLDS, reached, self.reached(ledger), strict=True):
                if was != now:
                    direction = "rising" if now else "falling"
                    self.told.append(("budget.threshold_crossed", ledger[0], int(threshold * 10**6), direction))
            if remaining > 0 and self.remaining(ledger) == 0:
                self.told.append(("budget.exhausted", ledger[0]))

    def expire(self) -> None:
        late = [hold for hold in self.holds.values() if hold["status"] == "ACTIVE" and self.now > hold["until"]]
        for hold in sorted(late, key=lambda hold: (hold["until"], hold["id"])):
            before = self.marks()
            hold["status"] = "EXPIRED"
            self.compare(before)
            self.told.append(("reservation.expired", hold["id"]))

    def ranges_hold(self, changes: list[tuple[Ledger, str, int]], released: int = 0) -> None:
        """Refuse what would not fit 64 bits after these changes and after `released` of hold is gone."""
        for ledger in {change[0] for change in changes}:
            after = {
                column: self.column(ledger, column)
                + sum(n for where, what, n in changes if (where, what) == (ledger, column))
                for column in ("allocated", "spent", "debt")
            }
            reserved = self.column(ledger, "reserved") - released
            if max(*after.values(), reserved) > MOST:
                raise Refused("INVALID_INPUT")
            if after["allocated"] - after["spent"] - after["debt"] - reserved < LEAST:
                raise Refused("INVALID_INPUT")
