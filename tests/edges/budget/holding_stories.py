"""Stories of section 12 about reserving and scopes, and the arithmetic of commits and debits (numbers: scenarios)."""

from __future__ import annotations

from typing import Final

from tests.edges.budget.edge import Refused
from tests.edges.budget.story import (
    AGENT,
    AIA,
    AWO,
    REJECT,
    C,
    P,
    close,
    commit,
    create,
    debit,
    decide,
    defaults,
    extend,
    find,
    freeze,
    fund,
    open_capped,
    release,
    reserve,
    seed,
    story,
    unfreeze,
    update,
)
from tests.edges.cycles.world import ACME, USD

MOST: Final = 2**63 - 1
LEVELS: Final = {
    "toolset": "t",
    "agent": "bot",
    "workflow": "f",
    "app": "p",
    "workspace": "w",
    "tenant": ACME,
}
"""All of them, not in their order."""

RESERVING: Final = (
    story(
        "1, 2: all that remains can be held, and then nothing more but nothing",
        {P: 1_000},
        reserve(1_000, gives={"decision": "ALLOW", "reserved": 1_000}, books={P: {"remaining": 0, "reserved": 1_000}}),
        reserve(1, gives="BUDGET_EXCEEDED", books={P: {"remaining": 0, "reserved": 1_000}}),
        reserve(0, gives={"decision": "ALLOW", "reserved": 0}, books={P: {"reserved": 1_000}}),
    ),
    story(
        "4: the narrowest budget decides, wherever it is, and nothing is held on the others",
        {P: 150, C: 1_000},
        reserve(120, AGENT, books={P: {"remaining": 30}, C: {"remaining": 880}}),
        reserve(
            40, AGENT, gives="BUDGET_EXCEEDED", books={P: {"reserved": 120}, C: {"remaining": 880, "reserved": 120}}
        ),
    ),
    story(
        "5, 10: scopes without a budget are named, and take no part; absent levels are skipped",
        {P: 1_000},
        reserve(
            10,
            AGENT,
            gives={
                "scope_path": C,
                "affected_scopes": [P, C],
                "balances": {P: {"allocated": 1_000, "remaining": 990, "reserved": 10, "spent": 0, "debt": 0}},
            },
        ),
    ),
    story(
        "7, 8: another unit than the budget's is refused, in every way of asking",
        {P: 1_000},
        reserve(
            1,
            unit=USD,
            gives=Refused("UNIT_MISMATCH", {"scope": P, "requested_unit": USD, "expected_units": ["TOKENS"]}),
        ),
        reserve(1, unit=USD, dry_run=True, gives="UNIT_MISMATCH"),
        decide(1, unit=USD, gives="UNIT_MISMATCH"),
        debit(1, unit=USD, gives="UNIT_MISMATCH", books={P: {"remaining": 1_000}}),
    ),
    story(
        "no budget at all: refused live, denied beforehand",
        {},
        reserve(1, gives="NOT_FOUND"),
        debit(1, gives="NOT_FOUND"),
        decide(1, gives={"decision": "DENY", "reason_code": "BUDGET_NOT_FOUND"}),
        reserve(1, dry_run=True, gives={"decision": "DENY", "reason_code": "BUDGET_NOT_FOUND", "reservation_id": None}),
    ),
    story(
        "11: six levels are six scopes, in their order",
        {P: 10},
        reserve(
            1,
            LEVELS,
            gives={
                "affected_scopes": [
                    P,
                    f"{P}/workspace:w",
                    f"{P}/workspace:w/app:p",
                    f"{P}/workspace:w/app:p/workflow:f",
                    f"{P}/workspace:w/app:p/workflow:f/agent:bot",
                    f"{P}/workspace:w/app:p/workflow:f/agent:bot/toolset:t",
                ]
            },
        ),
    ),
    story(
        "13: scopes are lower case, whatever the subject is",
        {C: 10},
        reserve(11, {**AGENT, "agent": "Bot"}, gives="BUDGET_EXCEEDED"),
        reserve(10, {**AGENT, "agent": "BOT"}, gives={"scope_path": C}, books={C: {"reserved": 10}}),
        find(gives={"subject": {"agent": "BOT"}}),
    ),
    story(
        "14: what cannot be a segment",
        {P: 10},
        *(reserve(1, {**AGENT, "agent": agent}, gives="INVALID_REQUEST") for agent in ("a/b", "a:b", "a b")),
        reserve(1, {}, gives="INVALID_REQUEST"),
        reserve(1, {"dimensions": {"team": "x"}}, gives="INVALID_REQUEST"),
    ),
    story(
        "16, 41: a frozen budget takes nothing new, and what was held settles",
        {P: 100},
        reserve(10),
        freeze(gives={"status": "FROZEN"}),
        reserve(1, gives="BUDGET_FROZEN"),
        reserve(1, dry_run=True, gives={"decision": "DENY", "reason_code": "BUDGET_FROZEN"}),
        decide(1, gives={"decision": "DENY", "reason_code": "BUDGET_FROZEN"}),
        debit(1, gives="BUDGET_FROZEN"),
        fund("CREDIT", 1, gives="BUDGET_FROZEN"),
        freeze(gives="BUDGET_FROZEN"),
        commit(7, gives={"charged": 7, "released": 3}, books={P: {"spent": 7, "reserved": 0}}),
        unfreeze(gives={"status": "ACTIVE"}),
        unfreeze(gives="INVALID_REQUEST"),
        reserve(1, gives={"decision": "ALLOW"}),
    ),
    story(
        "16: a closed budget as well, and for good",
        {P: 100},
        reserve(10),
        close(),
        reserve(1, gives="BUDGET_CLOSED"),
        reserve(1, dry_run=True, gives={"decision": "DENY", "reason_code": "BUDGET_CLOSED"}),
        debit(1, gives="BUDGET_CLOSED"),
        fund("CREDIT", 1, gives="BUDGET_CLOSED"),
        unfreeze(gives="BUDGET_CLOSED"),
        update(overdraft_limit=1, gives="BUDGET_CLOSED"),
        release(gives={"released": 10}, books={P: {"reserved": 0, "status": "CLOSED"}}),
    ),
    story(
        "17: the wider budget speaks first",
        {P: 10, C: 100},
        freeze(C),
        reserve(11, AGENT, gives="BUDGET_EXCEEDED"),
        reserve(10, AGENT, gives="BUDGET_FROZEN"),
        decide(11, AGENT, gives={"decision": "DENY", "reason_code": "BUDGET_EXCEEDED"}),
    ),
    story(
        "19: a debt above its limit blocks new holds; a strict tenant's any debt does",
        {P: (1_000, 500)},
        seed(P, debt=100),
        defaults(denies_on_any_debt=True),
        reserve(1, gives="DEBT_OUTSTANDING"),
        decide(1, gives={"decision": "DENY", "reason_code": "DEBT_OUTSTANDING"}),
        update(overdraft_limit=0, gives={"is_over_limit": True}),
        reserve(1, gives="OVERDRAFT_LIMIT_EXCEEDED"),
        decide(1, gives={"decision": "DENY", "reason_code": "OVERDRAFT_LIMIT_EXCEEDED"}),
    ),
    story(
        "20: debt within its limit blocks nothing",
        {P: (1_000, 500)},
        seed(P, debt=100),
        reserve(900, gives={"decision": "ALLOW"}, books={P: {"remaining": 0, "debt": 100, "is_over_limit": False}}),
        decide(0, gives={"decision": "ALLOW"}),
    ),
    story(
        "22: a budget that is opened later is not charged for what was held before",
        {C: 100},
        reserve(10, AGENT),
        create(P, 50, gives={"remaining": 50}),
        commit(10, gives={"balances": {C: {"spent": 10}}}, books={C: {"spent": 10}}),
        reserve(60, AGENT, hold="later", gives="BUDGET_EXCEEDED"),
    ),
    story(
        "23: the caps of the request's own budget come with the hold",
        {P: 100},
        open_capped(C, 100, max_tokens=7, tool_denylist=("shell",)),
        reserve(
            1,
            AGENT,
            gives={"decision": "ALLOW_WITH_CAPS", "caps": {"max_tokens": 7, "tool_denylist": ["shell"]}},
        ),
        decide(1, AGENT, gives={"decision": "ALLOW_WITH_CAPS", "caps": {"max_tokens": 7}}),
        reserve(1, hold="whole", gives={"decision": "ALLOW", "caps": None}),
        decide(1, gives={"decision": "ALLOW", "caps": None}),
    ),
    story(
        "25: amounts are exact to the last of 63 bits",
        {P: MOST},
        reserve(MOST, gives={"reserved": MOST}, books={P: {"remaining": 0, "reserved": MOST}}),
        commit(MOST - 1, gives={"charged": MOST - 1, "released": 1}, books={P: {"remaining": 1, "spent": MOST - 1}}),
        reserve(MOST + 1, hold="more", gives="INVALID_REQUEST"),
        fund("CREDIT", MOST, gives="INVALID_REQUEST", books={P: {"allocated": MOST}}),
    ),
    story(
        "26: what is no amount",
        {P: 10},
        *(reserve(amount, gives="INVALID_REQUEST") for amount in (-1, 1.5, True, None, [1], "x")),
        reserve(0, gives={"reserved": 0}),
        *(commit(amount, gives="INVALID_REQUEST") for amount in (-1, 0.5)),
    ),
    story(
        "77: lifetimes, graces and extensions within their ranges",
        {P: 10},
        *(reserve(0, ttl_ms=ttl, gives="INVALID_REQUEST") for ttl in (999, 86_400_001, -1)),
        *(reserve(0, grace_period_ms=grace, gives="INVALID_REQUEST") for grace in (60_001, -1)),
        *(reserve(0, ttl_ms=ttl, hold=f"{ttl}", gives={}) for ttl in (1_000, 86_400_000)),
        *(reserve(0, grace_period_ms=grace, hold=f"grace {grace}", gives={}) for grace in (0, 60_000)),
        reserve(0),
        *(extend(by, gives="INVALID_REQUEST") for by in (0, -1, 86_400_001)),
        *(extend(by, gives={}) for by in (1, 86_400_000)),
    ),
    story(
        "a preview holds nothing (I8)",
        {P: 10},
        decide(10, gives={"decision": "ALLOW", "affected_scopes": [P]}),
        decide(11, gives={"decision": "DENY", "reason_code": "BUDGET_EXCEEDED"}),
        reserve(
            4,
            dry_run=True,
            gives={"decision": "ALLOW", "reservation_id": None, "expires_at": None, "remaining_ttl_ms": None},
            books={P: {"reserved": 0, "remaining": 10}},
        ),
        reserve(11, dry_run=True, gives={"decision": "DENY", "reason_code": "BUDGET_EXCEEDED", "reserved": None}),
    ),
)

SETTLING: Final = (
    story(
        "28: what was held is charged, and nothing comes back",
        {P: 5_000},
        reserve(5_000),
        commit(5_000, gives={"charged": 5_000, "released": None}, books={P: {"spent": 5_000, "reserved": 0}}),
        find(gives={"status": "COMMITTED", "charged": 5_000}),
    ),
    story(
        "29: nothing used, all of it back, and committed all the same",
        {P: 5_000},
        reserve(5_000),
        commit(0, gives={"charged": 0, "released": 5_000}, books={P: {"remaining": 5_000}}),
        find(gives={"status": "COMMITTED", "charged": 0}),
    ),
    story(
        "31: more than was held, and enough of it",
        {P: 5_000},
        reserve(1_000, overage_policy=AIA),
        commit(2_000, gives={"charged": 2_000}, books={P: {"spent": 2_000, "is_over_limit": False}}),
    ),
    *(
        story(
            f"32: a charge is cut to what the narrowest has, which alone is marked ({policy})",
            {P: 150, C: 1_000},
            reserve(100, AGENT, overage_policy=policy),
            commit(
                200,
                gives={"charged": 150},
                books={P: {"remaining": 0, "is_over_limit": True}, C: {"remaining": 850, "is_over_limit": False}},
            ),
            reserve(0, AGENT, hold="next", gives="OVERDRAFT_LIMIT_EXCEEDED"),
        )
        for policy in (AIA, AWO)
    ),
    story(
        "REJECT: more than was held is refused, whatever remains, and the hold stays",
        {P: 1_000},
        reserve(100, overage_policy=REJECT),
        commit(101, gives="BUDGET_EXCEEDED", books={P: {"reserved": 100, "spent": 0}}),
        commit(100, gives={"charged": 100}),
    ),
    story(
        "34: debt up to the limit is within it",
        {P: (1_000_000, 100_000)},
        debit(900_000),
        reserve(1_000, overage_policy=AWO),
        commit(200_000, gives={"charged": 200_000}, books={P: {"debt": 100_000, "is_over_limit": False}}),
    ),
    story(
        "35: debt beyond the limit is refused, and nothing has changed",
        {P: (1_000_000, 100_000)},
        debit(900_000),
        reserve(1_000, overage_policy=AWO),
        commit(
            200_001,
            gives="OVERDRAFT_LIMIT_EXCEEDED",
            books={P: {"remaining": 99_000, "reserved": 1_000, "debt": 0}},
        ),
        commit(500_000, gives="OVERDRAFT_LIMIT_EXCEEDED"),
        find(gives={"status": "ACTIVE"}),
    ),
    story(
        "37: cut by the one without a limit, in debt on the one with",
        {P: 500, C: (100, 500)},
        reserve(100, AGENT, overage_policy=AWO),
        commit(
            1_200,
            gives={"charged": 500},
            books={
                P: {"remaining": 0, "is_over_limit": True},
                C: {"remaining": -400, "debt": 400, "is_over_limit": False},
            },
        ),
    ),
    story(
        "38: all scopes or none",
        {P: 1_000, C: (100, 500)},
        reserve(100, AGENT, overage_policy=AWO),
        commit(
            1_200,
            gives="OVERDRAFT_LIMIT_EXCEEDED",
            books={P: {"reserved": 100, "spent": 0}, C: {"reserved": 100, "debt": 0}},
        ),
    ),
    story(
        "40: one unit from the hold to its end",
        {P: 10},
        reserve(5),
        commit(5, unit=USD, gives="UNIT_MISMATCH", books={P: {"reserved": 5}}),
        find(gives={"status": "ACTIVE"}),
    ),
    story(
        "46: a debit is cut like a commit",
        {P: 50, C: 1_000},
        debit(
            100,
            AGENT,
            overage_policy=AIA,
            gives={"charged": 50},
            books={P: {"is_over_limit": True}, C: {"remaining": 950, "is_over_limit": False}},
        ),
    ),
    story(
        "47: down to nothing at all",
        {P: 10},
        debit(10, gives={"charged": 10}, books={P: {"is_over_limit": False}}),
        debit(100, overage_policy=AIA, gives={"charged": 0}, books={P: {"spent": 10, "is_over_limit": True}}),
    ),
    story(
        "49: or refused, on every scope",
        {P: 50, C: 1_000},
        debit(100, AGENT, overage_policy=REJECT, gives="BUDGET_EXCEEDED", books={P: {"spent": 0}, C: {"spent": 0}}),
    ),
    story(
        "50: or owed, up to the limit",
        {P: (1_000, 500)},
        debit(1_200, overage_policy=AWO, books={P: {"debt": 200, "remaining": -200}}),
        debit(300, overage_policy=AWO, books={P: {"debt": 500, "remaining": -500, "is_over_limit": False}}),
        debit(1, overage_policy=AWO, gives="OVERDRAFT_LIMIT_EXCEEDED", books={P: {"debt": 500}}),
        reserve(0, gives="BUDGET_EXCEEDED"),
    ),
    story(
        "38 of section 14: debt and marks block new holds and no debits",
        {P: (10, 100)},
        debit(30, overage_policy=AWO, books={P: {"debt": 20}}),
        update(overdraft_limit=5, gives={"is_over_limit": True}),
        reserve(0, gives="OVERDRAFT_LIMIT_EXCEEDED"),
        debit(0, gives={"charged": 0}),
    ),
    story(
        "54: the client's clock has no effect",
        {P: 10},
        debit(3, client_time_ms=0, gives={"charged": 3}, books={P: {"spent": 3}}),
    ),
)
