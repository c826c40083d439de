"""Webhooks on both planes of this wire (8.3 to 8.6, 11.9), every answer held against the published documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from domain.instants import show_instant
from domain.webhooks.targets import STRICT
from tests.edges.cycles.world import ACME, ADMIN, BOT, OTHER, TENANT, B, World, ok, refused
from tests.receiver import Receiver, receiving

INVALID = (400, "INVALID_REQUEST")
NOT_FOUND = (404, "WEBHOOK_NOT_FOUND")
NOBODYS = "whsub_" + "0" * 26
HOOKS = "hooks"
"""A key of acme with both permissions for webhooks: they are not among the defaults."""
RULES = {"max_retries": 3, "initial_delay_ms": 250, "backoff_multiplier": 1.5, "max_delay_ms": 5_000}


@pytest.fixture
async def receiver(world: World) -> AsyncIterator[Receiver]:
    await world.add_key(HOOKS, permissions=["webhooks:read", "webhooks:write", "events:read"])
    async with receiving() as made:
        yield made


async def make(world: World, receiver: Receiver, *, by: str = HOOKS, **changes: Any) -> dict[str, Any]:
    """The subscription; its secret under `secret`."""
    made = ok(await create(world, receiver, by=by, **changes), 201)
    return {**made["subscription"], "secret": made["signing_secret"]}


async def create(world: World, receiver: Receiver, *, by: str = HOOKS, **changes: Any) -> Any:
    tenant = {"tenant_id": changes.pop("tenant_id")} if "tenant_id" in changes else {}
    wanted = {"url": receiver.url(), "event_types": ["budget.funded"], **changes}
    body = {name: value for name, value in wanted.items() if value is not ...}
    path = "/v1/admin/webhooks" if by == ADMIN else "/v1/webhooks"
    return await world.post(path, body, by=by, **tenant)


async def patch(world: World, webhook_id: str, *, by: str = HOOKS, plane: str = "/v1", **changes: Any) -> Any:
    return await world.ask("PATCH", f"{plane}/webhooks/{webhook_id}", changes, by=by)


async def deliver(world: World) -> None:
    await world.node.relay.flush()
    await world.node.courier.run_once()


async def told(world: World, *types: str) -> list[dict[str, Any]]:
    """Events that operators see, oldest first."""
    await world.node.relay.flush()
    found = ok(await world.get("/v1/admin/events", by=ADMIN, category=types[0].partition(".")[0], sort_dir="asc"))
    return [event for event in found["events"] if event["event_type"] in types]


# -- making --------------------------------------------------------------------------------------------------------------


async def test_a_tenants_webhook_says_what_it_was_told(world: World, receiver: Receiver) -> None:
    given = {
        "name": "ops",
        "description": "to the pager",
        "event_types": ["budget.exhausted", "reservation.denied"],
        "event_categories": ["tenant"],
        "scope_filter": f"{TENANT}/*",
        "thresholds": {"budget_utilization": [0.8, 0.95], "burn_rate_multiplier": 3, "rate_window_seconds": 60},
        "retry_policy": RULES,
        "disable_after_failures": 3,
        "metadata": {"team": "a"},
    }
    made = ok(await create(world, receiver, headers={"Authorization": "Bearer x"}, **given), 201)
    shown = made["subscription"]
    assert made["signing_secret"].startswith("whsec_")
    assert shown == {
        **given,
        "subscription_id": shown["subscription_id"],
        "tenant_id": ACME,
        "url": receiver.url(),
        "headers": {"Authorization": "********"},
        "status": "ACTIVE",
        "consecutive_failures": 0,
        "created_at": show_instant(B),
    }
    assert ok(await world.get(f"/v1/webhooks/{shown['subscription_id']}", by=HOOKS)) == shown


async def test_defaults_are_those_of_the_document(world: World, receiver: Receiver) -> None:
    shown = await make(world, receiver)
    assert shown["retry_policy"] == {
        "max_retries": 5,
        "initial_delay_ms": 1_000,
        "backoff_multiplier": 2.0,
        "max_delay_ms": 60_000,
    }
    assert shown["disable_after_failures"] == 10
    assert shown["event_categories"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"event_types": ...},
        {"event_types": []},
        {"event_types": [], "event_categories": ["budget"]},
        {"event_types": ["budget.nothing"]},
        {"event_types": ["api_key.created"]},
        {"event_types": ["budget.funded", "system.webhook_test"]},
        {"event_categories": ["webhook"]},
        {"event_categories": ["nothing"]},
        {"url": ...},
        {"name": "x" * 257},
        {"description": "x" * 1_025},
        {"disable_after_failures": 0},
        {"retry_policy": {"max_retries": 11}},
        {"retry_policy": {"initial_delay_ms": 99}},
        {"retry_policy": {"backoff_multiplier": 0.9}},
        {"retry_policy": {"backoff_multiplier": 1.12345678}},
        {"retry_policy": {"max_delay_ms": 3_600_001}},
        {"retry_policy": {"retries": 1}},
        {"thresholds": {"budget_utilization": [1.1]}},
        {"thresholds": {"nothing": 1}},
        {"headers": {"X-Cycles-Signature": "sha256=forged"}},
        {"headers": {"host": "elsewhere"}},
        {"headers": {"A": "line\nbreak"}},
        {"signing_secret": ""},
        {"metadata": {"fill": "x" * 20_000}},
        {"status": "PAUSED"},
    ],
)
async def test_what_a_new_webhook_may_not_be(world: World, receiver: Receiver, changes: dict[str, Any]) -> None:
    assert refused(await create(world, receiver, **changes)) == INVALID


@pytest.mark.parametrize("url", ["", "ftp://x.example/", "https://", "https://u:p@x.example/", "x" * 2_049, "/hook"])
async def test_a_url_that_is_none_has_a_code_of_its_own(world: World, receiver: Receiver, url: str) -> None:
    assert refused(await create(world, receiver, url=url)) == (400, "WEBHOOK_URL_INVALID")


async def test_the_boundary_is_the_owners_whoever_writes(world: World, receiver: Receiver) -> None:
    """Invariant 2, on the operators' plane too; what the system owns may have anything."""
    admin_only = {"event_types": ["api_key.created"], "event_categories": ["webhook", "policy", "system"]}
    assert refused(await create(world, receiver, by=ADMIN, tenant_id=ACME, **admin_only)) == INVALID
    shown = await make(world, receiver, by=ADMIN, **admin_only)
    assert shown["tenant_id"] == "__system__"
    assert await make(world, receiver, by=ADMIN, tenant_id="__system__", **admin_only)
    own = await make(world, receiver, by=ADMIN, tenant_id=ACME)
    for plane, by in (("/v1", HOOKS), ("/v1", ADMIN), ("/v1/admin", ADMIN)):
        for changes in ({"event_types": ["policy.created"]}, {"event_categories": ["api_key"]}):
            assert refused(await patch(world, own["subscription_id"], by=by, plane=plane, **changes)) == INVALID


async def test_an_operator_names_a_tenant_that_there_is(world: World, receiver: Receiver) -> None:
    assert refused(await create(world, receiver, by=ADMIN, tenant_id="nobody")) == (404, "TENANT_NOT_FOUND")


async def test_a_key_needs_the_permission(world: World, receiver: Receiver) -> None:
    webhook = await make(world, receiver)
    place = f"/v1/webhooks/{webhook['subscription_id']}"
    lacking = (403, "INSUFFICIENT_PERMISSIONS")
    assert refused(await create(world, receiver, by=ACME)) == lacking
    for method, path in (("GET", "/v1/webhooks"), ("GET", place), ("DELETE", place), ("POST", f"{place}/test")):
        assert refused(await world.ask(method, path, {} if method == "POST" else None, by=ACME)) == lacking
    assert refused(await world.get(f"{place}/deliveries", by=ACME)) == lacking
    assert refused(await world.get("/v1/admin/webhooks", by=HOOKS)) == (401, "UNAUTHORIZED")


# -- reading -------------------------------------------------------------------------------------------------------------


async def test_another_tenants_webhook_is_not_there(world: World, receiver: Receiver) -> None:
    """Scenario 125: 404, not 403."""
    await world.add_tenant(OTHER)
    await world.add_key("other-hooks", OTHER, permissions=["webhooks:read", "webhooks:write"])
    webhook = await make(world, receiver)
    place = f"/v1/webhooks/{webhook['subscription_id']}"
    asked: list[tuple[str, str, Any]] = [
        ("GET", place, None),
        ("PATCH", place, {"status": "PAUSED"}),
        ("DELETE", place, None),
        ("POST", f"{place}/test", None),
        ("GET", f"{place}/deliveries", None),
    ]
    for method, path, body in asked:
        assert refused(await world.ask(method, path, body, by="other-hooks")) == NOT_FOUND
    assert ok(await world.get("/v1/webhooks", by="other-hooks")) == {"subscriptions": [], "has_more": False}
    for strange in (NOBODYS, "nonsense"):
        assert refused(await world.get(f"/v1/webhooks/{strange}", by=HOOKS)) == NOT_FOUND
        assert refused(await world.get(f"/v1/admin/webhooks/{strange}", by=ADMIN)) == NOT_FOUND


async def test_a_tenant_lists_its_own_page_by_page(world: World, receiver: Receiver) -> None:
    made = []
    for _ in range(5):
        made.append((await make(world, receiver))["subscription_id"])
        world.clock.advance(1)
    seen, cursor = [], None
    while True:
        page = ok(await world.get("/v1/webhooks", by=HOOKS, limit=2, **({"cursor": cursor} if cursor else {})))
        seen += [each["subscription_id"] for each in page["subscriptions"]]
        if not page["has_more"]:
            assert "next_cursor" not in page
            break
        cursor = page["next_cursor"]
    assert seen == made[::-1]
    assert refused(await world.get("/v1/webhooks", by=ADMIN)) == INVALID, "an operator has to name a tenant"
    assert len(ok(await world.get("/v1/webhooks", by=ADMIN, tenant=ACME))["subscriptions"]) == 5
    assert refused(await world.get("/v1/webhooks", by=HOOKS, tenant=OTHER)) == (403, "FORBIDDEN")


async def test_operators_list_all_by_filter_and_order(world: World, receiver: Receiver) -> None:
    first = await make(world, receiver, url=receiver.url("/b"), event_types=["budget.closed"])
    second = await make(world, receiver, by=ADMIN, url=receiver.url("/a"))
    await patch(world, first["subscription_id"], status="PAUSED")

    async def listed(**query: Any) -> list[str]:
        found = ok(await world.get("/v1/admin/webhooks", by=ADMIN, **query))
        return [each["subscription_id"] for each in found["subscriptions"]]

    ids = first["subscription_id"], second["subscription_id"]
    assert await listed(sort_by="url", sort_dir="asc") == [ids[1], ids[0]]
    assert await listed(sort_by="consecutive_failures") == sorted(ids)
    assert await listed(tenant_id=ACME) == [ids[0]]
    assert await listed(status="PAUSED") == [ids[0]]
    assert await listed(event_type="budget.funded") == [ids[1]]
    assert await listed(search="/A") == [ids[1]]
    assert await listed(search=ids[0]) == [ids[0]]
    assert refused(await world.get("/v1/admin/webhooks", by=ADMIN, sort_by="name")) == INVALID
    assert refused(await world.get("/v1/admin/webhooks", by=ADMIN, search="x" * 129)) == INVALID


# -- changing ------------------------------------------------------------------------------------------------------------


async def test_a_change_keeps_what_it_does_not_name_and_is_told_once(world: World, receiver: Receiver) -> None:
    webhook = await make(world, receiver, name="ops", headers={"A": "1", "B": "2"})
    world.clock.advance(5)
    changed = ok(await patch(world, webhook["subscription_id"], name="", metadata={"a": 1}, headers={"A": "********"}))
    assert "name" not in changed
    assert changed["metadata"] == {"a": 1}
    assert changed["headers"] == {"A": "********"}
    assert changed["updated_at"] == show_instant(B + 5)
    assert changed["event_types"] == ["budget.funded"]
    same = ok(await patch(world, webhook["subscription_id"], metadata={"a": 1}))
    assert same == changed
    (event,) = await told(world, "webhook.updated")
    assert event["data"]["changed_fields"] == ["name", "metadata", "headers"]
    assert event["tenant_id"] == ACME
    assert event["correlation_id"] == f"webhook_update:{webhook['subscription_id']}:{event['request_id']}"


async def test_types_may_be_taken_away_while_categories_remain(world: World, receiver: Receiver) -> None:
    """Invariant 1, on the state that results."""
    webhook_id = (await make(world, receiver))["subscription_id"]
    assert refused(await patch(world, webhook_id, event_types=[])) == INVALID
    changed = ok(await patch(world, webhook_id, event_types=[], event_categories=["budget"]))
    assert (changed["event_types"], changed["event_categories"]) == ([], ["budget"])
    assert refused(await patch(world, webhook_id, event_categories=[])) == INVALID
    ok(await patch(world, webhook_id, event_types=["budget.funded"]))
    ok(await patch(world, webhook_id, event_categories=[]))


async def test_each_change_of_status_has_its_event(world: World, receiver: Receiver) -> None:
    webhook_id = (await make(world, receiver))["subscription_id"]
    for changes in ({"status": "PAUSED"}, {"status": "PAUSED"}, {"status": "ACTIVE", "name": "x"}):
        ok(await patch(world, webhook_id, by=ADMIN, plane="/v1/admin", **changes))
    answer = await world.ask("DELETE", f"/v1/admin/webhooks/{webhook_id}", by=ADMIN)
    assert answer.status_code == 204
    assert refused(await world.ask("DELETE", f"/v1/admin/webhooks/{webhook_id}", by=ADMIN)) == NOT_FOUND
    kinds = [f"webhook.{word}" for word in ("created", "paused", "resumed", "deleted", "updated")]
    found = await told(world, *kinds)
    assert [event["event_type"] for event in found] == kinds[:4]
    shown = [(each["data"].get("previous_status"), each["data"].get("new_status")) for each in found]
    assert shown == [(None, "ACTIVE"), ("ACTIVE", "PAUSED"), ("PAUSED", "ACTIVE"), ("ACTIVE", None)]
    assert found[2]["data"]["changed_fields"] == ["name"]
    assert found[0]["correlation_id"] == f"webhook_create:{webhook_id}"
    assert found[3]["correlation_id"] == f"webhook_delete:{webhook_id}"
    assert [event["actor"]["type"] for event in found] == ["api_key", "admin", "admin", "admin"]


async def test_an_operator_in_the_tenants_place_is_on_record_as_such(world: World, receiver: Receiver) -> None:
    webhook_id = (await make(world, receiver))["subscription_id"]
    ok(await patch(world, webhook_id, by=ADMIN, status="PAUSED"))
    assert (await world.ask("DELETE", f"/v1/webhooks/{webhook_id}", by=ADMIN)).status_code == 204
    logs = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, resource_id=webhook_id, sort_dir="asc"))["logs"]
    shown = [(entry["operation"], entry["status"], entry["metadata"]["actor_type"]) for entry in logs]
    assert sorted(shown) == [
        ("createTenantWebhook", 201, "api_key"),
        ("deleteTenantWebhook", 204, "admin_on_behalf_of"),
        ("updateTenantWebhook", 200, "admin_on_behalf_of"),
    ]
    kinds = {event["event_type"]: event["actor"]["type"] for event in await told(world, "webhook.paused")}
    assert kinds == {"webhook.paused": "admin_on_behalf_of"}


async def test_a_status_that_only_comes_by_itself_cannot_be_set(world: World, receiver: Receiver) -> None:
    webhook_id = (await make(world, receiver))["subscription_id"]
    assert refused(await patch(world, webhook_id, status="DISABLED")) == INVALID
    assert refused(await patch(world, webhook_id, created_at=show_instant(B))) == INVALID


# -- deliveries ----------------------------------------------------------------------------------------------------------


async def test_an_event_arrives_as_it_is_listed_and_signed(world: World, receiver: Receiver) -> None:
    await world.budget(TENANT, 100)
    webhook = await make(world, receiver, headers={"Authorization": "Bearer x"})
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-00"
    answer = await world.fund("CREDIT", 5)
    world_event = await world.post(
        "/v1/admin/budgets/fund",
        {"operation": "CREDIT", "amount": {"unit": "TOKENS", "amount": 1}, "idempotency_key": world.key()},
        by=ADMIN,
        headers={"traceparent": parent},
        scope=TENANT,
        unit="TOKENS",
        tenant_id=ACME,
    )
    ok(answer)
    ok(world_event)
    await deliver(world)
    first, second = receiver.got
    listed = ok(await world.get("/v1/events", by=HOOKS, event_type="budget.funded", sort_dir="asc"))["events"]
    assert sorted([first.event, second.event], key=str) == sorted(listed, key=str)
    for got in (first, second):
        assert got.is_signed_with(webhook["secret"])
        assert got.method == "POST"
        assert got.header("Content-Type") == "application/json"
        assert got.header("Authorization") == "Bearer x"
        assert got.header("X-Cycles-Event-Id") == got.event["event_id"]
        assert got.header("X-Cycles-Event-Type") == "budget.funded"
        assert got.header("X-Request-Id") == got.event["request_id"]
        assert got.header("User-Agent").startswith("earmark/")
    version, trace, span, flags = second.header("traceparent").split("-")
    assert (version, trace, flags) == ("00", "a" * 32, "00"), "scenario 121: the caller's own decision"
    assert second.header("X-Cycles-Trace-Id") == second.event["trace_id"] == trace
    assert span != "b" * 16
    assert first.header("traceparent").endswith("-01")


async def test_deliveries_are_listed_with_what_became_of_them(world: World, receiver: Receiver) -> None:
    await world.budget(TENANT, 100)
    webhook_id = (await make(world, receiver))["subscription_id"]
    receiver.answers += [200, 500]
    for _ in range(2):
        ok(await world.fund("CREDIT", 5))
        world.clock.advance(10)
    await deliver(world)

    async def listed(by: str = HOOKS, plane: str = "/v1", **query: Any) -> list[dict[str, Any]]:
        found = ok(await world.get(f"{plane}/webhooks/{webhook_id}/deliveries", by=by, **query))
        return list(found["deliveries"])

    retrying, arrived = sorted(await listed(), key=lambda each: each["status"])
    assert (arrived["status"], arrived["attempts"], arrived["response_status"]) == ("SUCCESS", 1, 200)
    assert arrived["completed_at"] == show_instant(B + 20)
    assert retrying["status"] == "RETRYING"
    assert retrying["error_message"] == "the receiver answered 500"
    assert retrying["next_retry_at"] == show_instant(B + 20 + 1_000)
    assert retrying["traceparent_inbound_valid"] is False
    assert await listed(status="RETRYING") == [retrying]
    assert await listed(by=ADMIN, plane="/v1/admin", status="SUCCESS") == [arrived]
    assert await listed(to=show_instant(B + 19)) == []
    assert len(await listed(from_=show_instant(B + 20))) == 2
    page = ok(await world.get(f"/v1/webhooks/{webhook_id}/deliveries", by=HOOKS, limit=1))
    assert page["has_more"]
    assert len(await listed(limit=1, cursor=page["next_cursor"])) == 1
    assert refused(await world.get(f"/v1/webhooks/{webhook_id}/deliveries", by=HOOKS, status="LOST")) == INVALID
    assert refused(await world.get(f"/v1/webhooks/{webhook_id}/deliveries", by=HOOKS, from_="now")) == INVALID
    assert refused(await world.get(f"/v1/webhooks/{NOBODYS}/deliveries", by=HOOKS)) == NOT_FOUND


async def test_a_test_changes_nothing_and_is_among_the_deliveries(world: World, receiver: Receiver) -> None:
    webhook = await make(world, receiver)
    webhook_id = webhook["subscription_id"]
    ok(await patch(world, webhook_id, status="PAUSED"))
    receiver.answers.append(503)
    failed = ok(await world.ask("POST", f"/v1/webhooks/{webhook_id}/test", by=HOOKS))
    assert (failed["success"], failed["response_status"]) == (False, 503)
    went = ok(await world.ask("POST", f"/v1/admin/webhooks/{webhook_id}/test", by=ADMIN))
    assert (went["success"], went["response_status"]) == (True, 200)
    probe = receiver.got[1]
    assert probe.is_signed_with(webhook["secret"])
    assert (probe.event["event_type"], probe.event["category"]) == ("system.webhook_test", "system")
    assert probe.event["event_id"] == went["event_id"]
    shown = ok(await world.get(f"/v1/webhooks/{webhook_id}", by=HOOKS))
    assert (shown["status"], shown["consecutive_failures"], shown["event_types"]) == ("PAUSED", 0, ["budget.funded"])
    found = ok(await world.get(f"/v1/webhooks/{webhook_id}/deliveries", by=HOOKS))["deliveries"]
    assert {each["status"] for each in found} == {"SUCCESS", "FAILED"}
    assert {each["event_type"] for each in found} == {"system.webhook_test"}


# -- replays -------------------------------------------------------------------------------------------------------------


async def replay(world: World, webhook_id: str, **body: Any) -> Any:
    renamed = {name.removesuffix("_"): value for name, value in body.items()}
    return await world.post(f"/v1/admin/webhooks/{webhook_id}/replay", renamed, by=ADMIN)


async def test_s124_a_replay_takes_all_of_a_window_or_nothing(world: World, receiver: Receiver) -> None:
    await world.budget(TENANT, 100)
    for _ in range(4):
        ok(await world.fund("CREDIT", 5))
        world.clock.advance(10)
    await world.node.relay.flush()
    webhook_id = (await make(world, receiver))["subscription_id"]
    window = {"from_": show_instant(B), "to": show_instant(B + 30)}
    assert refused(await replay(world, webhook_id, **window, max_events=3)) == INVALID
    assert refused(await replay(world, webhook_id, from_=show_instant(B + 1), to=show_instant(B))) == INVALID
    assert refused(await replay(world, webhook_id, max_events=0)) == INVALID
    assert refused(await replay(world, webhook_id, max_events=1_001)) == INVALID
    assert refused(await replay(world, webhook_id, event_types=["nothing.at_all"])) == INVALID
    assert refused(await replay(world, NOBODYS, **window)) == NOT_FOUND
    accepted = ok(await replay(world, webhook_id, **window), 202)
    assert accepted["events_queued"] == 4
    assert accepted["estimated_completion_seconds"] == 1
    assert refused(await replay(world, webhook_id, **window)) == (409, "REPLAY_IN_PROGRESS")
    await deliver(world)
    stamps = [got.event["timestamp"] for got in receiver.got]
    assert stamps == [show_instant(B + 10 * number) for number in range(4)], "chronological"
    again = ok(await replay(world, webhook_id, from_=show_instant(B + 30), event_types=["budget.funded"]), 202)
    assert again["events_queued"] == 1
    await deliver(world)
    nothing = ok(await replay(world, webhook_id, event_types=["budget.closed"]), 202)
    assert (nothing["events_queued"], nothing["estimated_completion_seconds"]) == (0, 0)
    assert receiver.event_ids[3] == receiver.event_ids[4], "each is a new delivery of the same event"


# -- what an operator does besides ---------------------------------------------------------------------------------------


async def test_where_webhooks_may_go_is_an_operators_to_say(world: World, receiver: Receiver) -> None:
    place = "/v1/admin/config/webhook-security"
    shown = ok(await world.get(place, by=ADMIN))
    assert shown == {"blocked_cidr_ranges": [], "allowed_url_patterns": [], "allow_http": True}, "of these tests"
    wanted = {"blocked_cidr_ranges": ["127.0.0.0/8"], "allowed_url_patterns": ["https://*.example.com/*"]}
    assert ok(await world.ask("PUT", place, wanted, by=ADMIN)) == {**wanted, "allow_http": False}
    assert refused(await create(world, receiver)) == (400, "WEBHOOK_URL_INVALID")
    for url, fits in (("https://a.example.com/x", True), ("https://evil.test/x.example.com/", False)):
        answer = await create(world, receiver, url=url)
        assert (answer.status_code == 201) is fits
    assert ok(await world.ask("PUT", place, {}, by=ADMIN))["blocked_cidr_ranges"] == list(STRICT.blocked_cidr_ranges)
    for bad in ({"blocked_cidr_ranges": ["10.0.0.0/33"]}, {"allowed_url_patterns": ["*"]}, {"more": 1}):
        assert refused(await world.ask("PUT", place, bad, by=ADMIN)) == INVALID
    assert refused(await world.get(place, by=HOOKS)) == (401, "UNAUTHORIZED")


async def test_a_closed_tenants_webhooks_are_disabled_and_can_only_be_looked_at(
    world: World, receiver: Receiver
) -> None:
    """Cascade rule 1, with what was told of the closing; and rule 2, at once."""
    webhook_id = (await make(world, receiver, name="ops"))["subscription_id"]
    await world.set_tenant(status="CLOSED")
    closed = (409, "TENANT_CLOSED")
    place = f"/v1/admin/webhooks/{webhook_id}"
    assert refused(await create(world, receiver, by=ADMIN, tenant_id=ACME)) == closed
    assert refused(await patch(world, webhook_id, by=ADMIN, plane="/v1/admin", status="ACTIVE")) == closed
    assert refused(await world.ask("DELETE", place, by=ADMIN)) == closed
    assert refused(await world.ask("POST", f"{place}/test", by=ADMIN)) == closed
    assert refused(await replay(world, webhook_id)) == closed
    await deliver(world)
    assert ok(await world.get(place, by=ADMIN))["status"] == "DISABLED"
    (event,) = await told(world, "webhook.disabled_via_tenant_cascade")
    (closing,) = await told(world, "tenant.closed")
    assert event["data"] == {
        "subscription_id": webhook_id,
        "name": "ops",
        "prior_status": "ACTIVE",
        "new_status": "DISABLED",
        "cascade_reason": "tenant_closed",
    }
    assert event["correlation_id"] == closing["correlation_id"]
    assert (event["request_id"], event["trace_id"]) == (closing["request_id"], closing["trace_id"])
    log = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, resource_id=webhook_id))["logs"]
    assert "webhook.disabled_via_tenant_cascade" in [entry["operation"] for entry in log]
    await deliver(world)
    assert len(await told(world, "webhook.disabled_via_tenant_cascade")) == 1
    assert receiver.got == [], "nothing goes out any more, the closing itself neither"


async def test_one_action_for_all_that_a_filter_finds(world: World, receiver: Receiver) -> None:
    ids = [(await make(world, receiver, name=str(number)))["subscription_id"] for number in range(3)]
    ok(await patch(world, ids[1], status="PAUSED"))

    async def act(action: str, **changes: Any) -> Any:
        body = {"filter": {"tenant_id": ACME}, "action": action, "idempotency_key": world.key(), **changes}
        return await world.post("/v1/admin/webhooks/bulk-action", body, by=ADMIN)

    assert refused(await act("PAUSE", filter={})) == INVALID
    assert refused(await act("DISABLE")) == INVALID
    assert refused(await act("PAUSE", expected_count=2)) == (409, "COUNT_MISMATCH")
    key = "any text, blanks too"
    done = ok(await act("PAUSE", expected_count=3, idempotency_key=key))
    assert {row["id"] for row in done["succeeded"]} == {ids[0], ids[2]}
    assert done["skipped"] == [{"id": ids[1], "reason": "ALREADY_IN_TARGET_STATE"}]
    assert (done["total_matched"], done["failed"], done["idempotency_key"]) == (3, [], key)
    assert ok(await act("PAUSE", expected_count=3, idempotency_key=key)) == done, "again, and nothing more happens"
    assert refused(await act("RESUME", idempotency_key=key)) == (409, "IDEMPOTENCY_MISMATCH")
    paused = await told(world, "webhook.paused")
    bulk = [event for event in paused if event["correlation_id"].startswith("webhook_bulk_action:pause:")]
    assert {event["data"]["subscription_id"] for event in bulk} == {ids[0], ids[2]}
    assert len({event["request_id"] for event in bulk}) == 1
    log = ok(await world.get("/v1/admin/audit/logs", by=ADMIN, operation="bulkActionWebhooks", status=200))["logs"]
    assert len(log) == 1
    assert len(ok(await act("DELETE", filter={"search": receiver.url()}))["succeeded"]) == 3
    assert ok(await world.get("/v1/admin/webhooks", by=ADMIN))["subscriptions"] == []


async def test_an_operators_overview_counts_webhooks(world: World, receiver: Receiver) -> None:
    await world.budget(TENANT, 100)
    quick = {"max_retries": 0}
    worst = await make(world, receiver, retry_policy=quick, disable_after_failures=2)
    await make(world, receiver, event_types=["budget.closed"])
    receiver.usually = 500
    for _ in range(2):
        ok(await world.fund("CREDIT", 1))
    await deliver(world)
    shown = ok(await world.get("/v1/admin/overview", by=ADMIN))
    assert shown["webhook_counts"] == {"total": 2, "active": 1, "disabled": 1, "with_failures": 1}
    assert shown["failing_webhooks"] == [
        {
            "subscription_id": worst["subscription_id"],
            "url": receiver.url(),
            "consecutive_failures": 2,
            "last_failure_at": show_instant(B),
        }
    ]


async def test_a_key_that_is_confined_to_scopes_has_a_say_about_webhooks_within_them(
    world: World, receiver: Receiver
) -> None:
    await world.add_key("bot", permissions=["webhooks:read", "webhooks:write"], scope_filter=["agent:bot"])
    wide = await make(world, receiver)
    assert refused(await create(world, receiver, by="bot")) == (403, "FORBIDDEN")
    assert refused(await create(world, receiver, by="bot", scope_filter=f"{TENANT}/*")) == (403, "FORBIDDEN")
    own = await make(world, receiver, by="bot", scope_filter=f"{BOT}/*")
    assert refused(await patch(world, own["subscription_id"], by="bot", scope_filter="")) == (403, "FORBIDDEN")
    assert refused(await world.get(f"/v1/webhooks/{wide['subscription_id']}", by="bot")) == NOT_FOUND
    listed = ok(await world.get("/v1/webhooks", by="bot"))["subscriptions"]
    assert [each["subscription_id"] for each in listed] == [own["subscription_id"]]


async def test_lists_are_asked_for_types_that_there_are(world: World) -> None:
    for path, given in (
        ("/v1/admin/webhooks", {"event_type": "nothing.at_all"}),
        ("/v1/admin/audit/logs", {"trace_id": "x"}),
    ):
        assert refused(await world.get(path, by=ADMIN, **given)) == INVALID
    ok(await world.get("/v1/admin/webhooks", by=ADMIN, event_type="custom.reservation-grant.ended"))
    body = {"filter": {"event_type": "nothing.at_all"}, "action": "PAUSE", "idempotency_key": "k"}
    assert refused(await world.post("/v1/admin/webhooks/bulk-action", body, by=ADMIN)) == INVALID


@pytest.mark.parametrize("tenant_id", ["a\r\nX-Evil: 1", "\u00e4", "x" * 200, "a b"])
async def test_what_cannot_be_a_tenant_is_in_no_header(world: World, tenant_id: str) -> None:
    answer = await world.get("/v1/admin/webhooks", by=ADMIN, tenant_id=tenant_id)
    assert "x-cycles-tenant" not in answer.headers


async def test_a_replay_needs_a_body(world: World) -> None:
    answer = await world.ask("POST", f"/v1/admin/webhooks/{NOBODYS}/replay", by=ADMIN)
    assert refused(answer) == INVALID
