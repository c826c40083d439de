"""Budgets through GraphQL: hold, settle and spend, with what is refused, told again and kept from others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.world import BASE, HOUR, MINUTE, World

MOST = 2**63 - 1
BALANCES = "balances { scope unit allocated remaining reserved spent debt isOverLimit }"
HOLD = f"""... on BudgetHold {{
  decision reservationId unit reserved scope affectedScopes decidedAt expiresAt remainingTtlMs reasonCode {BALANCES}
}}"""
COMMIT = f"... on BudgetCommit {{ reservationId unit charged released finalizedAt {BALANCES} }}"
BUDGET = """... on Budget {
  id tenantId scope unit status allocated remaining reserved spent debt overdraftLimit createdAt metadata
}"""
EXCEEDED = "... on BudgetExceeded { scope unit requested available }"
ONE = """query ($scope: String!, $unit: BudgetUnit!, $tenantId: ID) {
  budget(scope: $scope, unit: $unit, tenantId: $tenantId) { tenantId scope allocated remaining reserved spent }
}"""
DECIDE = """query ($input: DecideInput!) { decide(input: $input) {
  __typename ... on BudgetVerdict { decision reasonCode affectedScopes } ... on Refusal { code }
} }"""


def amount(number: Any, unit: str = "TOKENS") -> dict[str, Any]:
    return {"unit": unit, "amount": number}


def wanted(number: Any, *, key: str = "k", **changes: Any) -> dict[str, Any]:
    """An acceptable input of reserveBudget."""
    return {
        "idempotencyKey": key,
        "subject": {"tenant": "a", "agent": "bot"},
        "action": {"kind": "llm.completion", "name": "model"},
        "estimate": amount(number),
        **changes,
    }


@pytest.fixture
async def budgets(world: World) -> World:
    """Tenant a has a budget of 1000 tokens."""
    made = await open_budget(world, 1_000)
    assert made["__typename"] == "Budget", made
    return world


async def open_budget(world: World, allocated: Any, *, scope: str = "tenant:a", **changes: Any) -> Any:
    given = {"scope": scope, "unit": "TOKENS", "allocated": amount(allocated), **changes}
    return await world.mutate("createBudget", given, BUDGET, caller=world.callers["a"])


async def reserve(world: World, number: Any, *, by: str = "a", **changes: Any) -> Any:
    return await world.mutate("reserveBudget", wanted(number, **changes), HOLD + EXCEEDED, caller=world.callers[by])


async def commit(world: World, hold: str, number: Any, *, by: str = "a", key: str = "c") -> Any:
    given = {"reservationId": hold, "idempotencyKey": key, "actual": amount(number)}
    selection = f"{COMMIT} ... on ReservationFinalized {{ finalStatus }}"
    return await world.mutate("commitBudget", given, selection, caller=world.callers[by])


async def test_a_hold_is_settled_and_the_rest_comes_back(budgets: World) -> None:
    held = await reserve(budgets, 300)
    settled = await commit(budgets, held["reservationId"], 120)
    budget = (await budgets.data(ONE, budgets.callers["a"], scope="tenant:a", unit="TOKENS"))["budget"]

    assert (held["decision"], held["reserved"], held["scope"]) == ("ALLOW", "300", "tenant:a/agent:bot")
    assert (held["decidedAt"], held["expiresAt"], held["remainingTtlMs"]) == (BASE, BASE + MINUTE, "60000")
    assert [(each["scope"], each["remaining"], each["reserved"]) for each in held["balances"]] == [
        ("tenant:a", "700", "300")
    ]
    assert (settled["charged"], settled["released"], settled["finalizedAt"]) == ("120", "180", BASE)
    assert budget == {
        "tenantId": "a",
        "scope": "tenant:a",
        "allocated": "1000",
        "remaining": "880",
        "reserved": "0",
        "spent": "120",
    }


async def test_what_is_not_there_is_refused_with_how_much_is(budgets: World) -> None:
    refused = await reserve(budgets, 1_001)

    assert refused == {
        "__typename": "BudgetExceeded",
        "code": "BUDGET_EXCEEDED",
        "message": refused["message"],
        "scope": "tenant:a",
        "unit": "TOKENS",
        "requested": "1001",
        "available": "1000",
    }


async def test_a_deny_is_an_answer_to_whoever_asks_beforehand(budgets: World) -> None:
    verdict = (await budgets.data(DECIDE, budgets.callers["a"], input=wanted(1_001)))["decide"]
    fits = (await budgets.data(DECIDE, budgets.callers["a"], input={**wanted(1_000), "idempotencyKey": "k2"}))["decide"]
    dry = await reserve(budgets, 1_001, key="dry", dryRun=True)

    assert (verdict["decision"], verdict["reasonCode"]) == ("DENY", "BUDGET_EXCEEDED")
    assert (fits["decision"], fits["reasonCode"]) == ("ALLOW", None)
    assert (dry["decision"], dry["reasonCode"], dry["reservationId"]) == ("DENY", "BUDGET_EXCEEDED", None)


async def test_a_retry_gets_the_first_answer_and_another_request_under_its_key_none(budgets: World) -> None:
    first = await reserve(budgets, 300)
    budgets.clock.advance(1_000)
    again = await reserve(budgets, 300)
    other = await reserve(budgets, 301)

    assert again == {**first, "remainingTtlMs": "59000"}
    assert (other["__typename"], other["code"]) == ("IdempotencyMismatch", "IDEMPOTENCY_MISMATCH")


async def test_a_settled_hold_is_over(budgets: World) -> None:
    held = await reserve(budgets, 300)
    settled = await commit(budgets, held["reservationId"], 300)
    again = await commit(budgets, held["reservationId"], 300)
    late = await commit(budgets, held["reservationId"], 300, key="other")

    assert again == settled
    assert (late["code"], late["finalStatus"]) == ("RESERVATION_FINALIZED", "COMMITTED")


async def test_another_tenant_neither_spends_nor_sees(budgets: World) -> None:
    held = await reserve(budgets, 300)
    spent = await reserve(budgets, 1, by="b", key="b")
    settled = await commit(budgets, held["reservationId"], 1, by="b")
    seen = await budgets.ask(ONE, budgets.callers["b"], scope="tenant:a", unit="TOKENS", tenantId="a")
    by_root = (await budgets.data(ONE, scope="tenant:a", unit="TOKENS", tenantId="a"))["budget"]

    assert (spent["code"], settled["code"]) == ("ACCESS_DENIED", "ACCESS_DENIED")
    assert seen.data == {"budget": None}
    assert seen.errors is not None
    assert (seen.errors[0].extensions or {})["code"] == "ACCESS_DENIED"
    assert by_root["reserved"] == "300"


async def test_amounts_are_exact_to_the_last_of_64_bits(world: World) -> None:
    made = await open_budget(world, str(MOST))
    held = await reserve(world, str(MOST))
    settled = await commit(world, held["reservationId"], str(MOST - 1))

    assert made["allocated"] == held["reserved"] == "9223372036854775807"
    assert (settled["charged"], settled["released"]) == ("9223372036854775806", "1")
    assert settled["balances"][0]["remaining"] == "1"


async def test_a_hold_is_extended_and_released_and_spending_needs_none(budgets: World) -> None:
    a = budgets.callers["a"]
    held = await reserve(budgets, 300)
    named = {"reservationId": held["reservationId"], "idempotencyKey": "e"}
    extended = await budgets.mutate(
        "extendBudget",
        {**named, "extendByMs": HOUR // 2},
        "... on BudgetExtension { expiresAt extensionsUsed }",
        caller=a,
    )
    released = await budgets.mutate("releaseBudget", named, "... on BudgetRelease { released }", caller=a)
    asked = {**wanted(0), "actual": amount(40)}
    del asked["estimate"]
    spent = await budgets.mutate("debitBudget", asked, f"... on BudgetDebit {{ charged {BALANCES} }}", caller=a)

    assert (extended["expiresAt"], extended["extensionsUsed"]) == (BASE + MINUTE + HOUR // 2, "1")
    assert released["released"] == "300"
    assert (spent["charged"], spent["balances"][0]["remaining"]) == ("40", "960")


async def test_refusals_name_the_field_as_this_schema_calls_it(budgets: World) -> None:
    negative = await reserve(budgets, -1)
    brief = await reserve(budgets, 1, ttlMs=1)
    grace = await reserve(budgets, 1, gracePeriodMs=-1)

    assert [refused["field"] for refused in (negative, brief, grace)] == ["estimate.amount", "ttlMs", "gracePeriodMs"]


async def test_metadata_is_an_object(budgets: World) -> None:
    document = "mutation ($input: ReserveBudgetInput!) { reserveBudget(input: $input) { __typename } }"
    result = await budgets.ask(document, budgets.callers["a"], input=wanted(1, metadata=[1]))

    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "INVALID_INPUT"


# -- governing ---------------------------------------------------------------------------------------------------------


async def test_a_budget_is_opened_once_funded_frozen_and_unfrozen(budgets: World) -> None:
    a, named = budgets.callers["a"], {"scope": "tenant:a", "unit": "TOKENS"}
    second = await budgets.mutate(
        "createBudget",
        {**named, "allocated": amount(1)},
        "... on Duplicate { resource resourceId }",
        caller=a,
    )
    credit = {**named, "operation": "CREDIT", "amount": amount(500), "idempotencyKey": "f"}
    selection = "... on BudgetFunding { before { allocated } after { allocated remaining } }"
    funded = [await budgets.mutate("fundBudget", credit, selection, caller=a) for _ in range(2)]
    frozen = await budgets.mutate("freezeBudget", {**named, "reason": "audit"}, BUDGET, caller=a)
    refused = await reserve(budgets, 1)
    again = await budgets.mutate("freezeBudget", named, BUDGET, caller=a)
    thawed = await budgets.mutate("unfreezeBudget", named, BUDGET, caller=a)

    assert (second["code"], second["resource"]) == ("DUPLICATE_RESOURCE", "budget")
    assert funded[0] == funded[1]
    assert (funded[0]["before"]["allocated"], funded[0]["after"]["allocated"]) == ("1000", "1500")
    assert (frozen["status"], refused["code"], again["code"]) == ("FROZEN", "BUDGET_FROZEN", "BUDGET_FROZEN")
    assert thawed["status"] == "ACTIVE"


async def test_what_a_budget_allows_is_changed_and_the_rest_stays(budgets: World) -> None:
    given = {"scope": "tenant:a", "unit": "TOKENS", "overdraftLimit": amount(50), "metadata": {"team": "x"}}
    changed = await budgets.mutate("updateBudget", given, BUDGET, caller=budgets.callers["a"])

    assert (changed["overdraftLimit"], changed["allocated"]) == ("50", "1000")
    assert changed["metadata"] == {"team": "x"}


async def test_budgets_are_paged_by_scope_and_root_sees_everybodys(budgets: World) -> None:
    await open_budget(budgets, 5, scope="tenant:a/agent:bot")
    document = """query ($first: Int, $after: String, $all: Boolean! = false) {
      budgets(first: $first, after: $after, all: $all) {
        nodes { tenantId scope } pageInfo { hasNextPage hasPreviousPage endCursor }
      }
    }"""
    page = (await budgets.data(document, budgets.callers["a"], first=1))["budgets"]
    rest = (await budgets.data(document, budgets.callers["a"], after=page["pageInfo"]["endCursor"]))["budgets"]
    everything = (await budgets.data(document, all=True))["budgets"]
    wrong = await budgets.ask(document, budgets.callers["a"], after="nonsense")

    assert [node["scope"] for node in page["nodes"]] == ["tenant:a"]
    assert page["pageInfo"]["hasNextPage"] is True
    assert [node["scope"] for node in rest["nodes"]] == ["tenant:a/agent:bot"]
    assert (rest["pageInfo"]["hasNextPage"], rest["pageInfo"]["hasPreviousPage"]) == (False, True)
    assert len(everything["nodes"]) == 2
    assert wrong.errors is not None
    assert (wrong.errors[0].extensions or {})["field"] == "after"


# -- looking on --------------------------------------------------------------------------------------------------------

HOLDS = """query ($status: BudgetReservationStatus, $key: String) {
  budgetReservations(status: $status, idempotencyKey: $key) {
    nodes { id tenantId status reserved charged scope subject action { kind } }
  }
}"""


async def test_holds_are_listed_and_looked_up_with_what_became_of_them(budgets: World) -> None:
    a = budgets.callers["a"]
    first, second = await reserve(budgets, 300), await reserve(budgets, 200, key="second")
    await commit(budgets, first["reservationId"], 120)
    everything = (await budgets.data(HOLDS, a))["budgetReservations"]["nodes"]
    active = (await budgets.data(HOLDS, a, status="ACTIVE"))["budgetReservations"]["nodes"]
    by_key = (await budgets.data(HOLDS, a, key="k"))["budgetReservations"]["nodes"]
    document = "query ($id: ID!) { budgetReservation(id: $id) { id status } }"
    one = (await budgets.data(document, a, id=second["reservationId"]))["budgetReservation"]
    none = (await budgets.data(document, a, id="rsv_nobodys"))["budgetReservation"]

    assert {hold["id"] for hold in everything} == {first["reservationId"], second["reservationId"]}
    assert [hold["id"] for hold in active] == [second["reservationId"]]
    assert [(hold["status"], hold["reserved"], hold["charged"]) for hold in by_key] == [("COMMITTED", "300", "120")]
    assert (by_key[0]["subject"], by_key[0]["action"]) == ({"tenant": "a", "agent": "bot"}, {"kind": "llm.completion"})
    assert (one, none) == ({"id": second["reservationId"], "status": "ACTIVE"}, None)
