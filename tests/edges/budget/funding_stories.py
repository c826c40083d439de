"""Stories of section 12 about funding (numbers: scenarios)."""

from __future__ import annotations

from typing import Final

from tests.edges.budget.story import AWO, P, create, debit, fund, reserve, story

FUNDING: Final = (
    story(
        "127: a credit repays first",
        {P: (1_000, 1_000)},
        debit(1_500, overage_policy=AWO, books={P: {"debt": 500, "spent": 1_000, "remaining": -500}}),
        fund(
            "CREDIT",
            600,
            gives={"before": {"debt": 500, "remaining": -500}, "after": {"debt": 0, "remaining": 100}},
            books={P: {"allocated": 1_600, "spent": 1_500, "debt": 0, "remaining": 100}},
        ),
    ),
    story(
        "128: nothing is taken away that is not there; a reset may go below nothing",
        {P: 1_000},
        debit(300),
        fund("DEBIT", 701, gives="BUDGET_EXCEEDED", books={P: {"allocated": 1_000}}),
        fund("DEBIT", 700, books={P: {"remaining": 0, "allocated": 300}}),
        fund("RESET", 100, books={P: {"remaining": -200, "spent": 300, "is_over_limit": False}}),
        reserve(0, gives="BUDGET_EXCEEDED"),
        fund("RESET_SPENT", 100, books={P: {"remaining": 100, "spent": 0}}),
        reserve(40),
        fund("RESET_SPENT", 90, spent=20, books={P: {"allocated": 90, "spent": 20, "reserved": 40, "remaining": 30}}),
    ),
    story(
        "debt is repaid, and a surplus is a credit",
        {P: (100, 100)},
        debit(150, overage_policy=AWO, books={P: {"debt": 50}}),
        fund("REPAY_DEBT", 30, books={P: {"debt": 20, "allocated": 100, "spent": 100, "remaining": -20}}),
        fund("REPAY_DEBT", 30, books={P: {"debt": 0, "allocated": 110, "remaining": 10}}),
    ),
    story(
        "119: the mark of a cut charge goes with any funding but a debit",
        {P: 100},
        debit(150, gives={"charged": 100}, books={P: {"is_over_limit": True}}),
        fund("DEBIT", 0, books={P: {"is_over_limit": True}}),
        reserve(0, gives="OVERDRAFT_LIMIT_EXCEEDED"),
        fund("CREDIT", 10, books={P: {"is_over_limit": False}}),
        reserve(10, gives={"decision": "ALLOW"}),
    ),
    story(
        "a scope has one budget in a unit",
        {P: 10},
        create(P, 5, gives="DUPLICATE_RESOURCE"),
        create(f"{P}/agent:x", 5, gives={"scope": f"{P}/agent:x", "allocated": 5}),
        create("agent:x", 5, gives="INVALID_REQUEST"),
        create("tenant:other-corp", 5, gives="INVALID_REQUEST"),
        fund("CREDIT", 1, f"{P}/agent:y", gives="NOT_FOUND"),
    ),
)
