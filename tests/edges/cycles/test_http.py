"""HTTP itself: ids and traces, paths and methods, sizes, and what an error looks like (sections 1.0 and 5.3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from domain.amounts import Amount, Unit
from domain.budget.values import Action, Subject
from server.rest.cycles.bodies import BODY_MAX
from tests.edges.cycles.contract import VARIABLE, documents
from tests.edges.cycles.world import ACME, ADMIN, TENANT, B, World, check_answer, ok, refused
from tests.registry_desks import lock_waiter
from workers.actor import MAILBOX_MAX
from workers.lane import BATCH_MAX
from workers.request import Caller

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER_TRACE = "11111111111111111111111111111111"
SPAN = "b7ad6b7169203331"
INVALID = "INVALID_REQUEST"


def test_the_published_documents_judge_the_answers() -> None:
    if documents() is None:
        pytest.skip(f"the protocol's OpenAPI documents are not here: {VARIABLE} names their folder")
    runtime, admin = documents() or ()
    assert runtime.find("post", "/v1/reservations/rsv_1/commit") is not None
    assert admin.find("get", "/v1/admin/tenants/acme") is not None


async def test_every_answer_names_its_request_its_trace_and_its_tenant(world: World) -> None:
    await world.budget(TENANT, 10)
    answers = [await world.reserve(1), await world.reserve(100), await world.get("/v1/reservations", limit="x")]
    assert [answer.status_code for answer in answers] == [200, 409, 400]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 3
    assert {answer.headers["x-cycles-tenant"] for answer in answers} == {ACME}


async def test_s110_the_trace_is_the_traceparents_before_all_others(world: World) -> None:
    sent = {"traceparent": f"00-{TRACE}-{SPAN}-01", "X-Cycles-Trace-Id": OTHER_TRACE}
    assert (await world.get("/v1/reservations", headers=sent)).headers["x-cycles-trace-id"] == TRACE
    sent = {"traceparent": "00-nonsense", "X-Cycles-Trace-Id": OTHER_TRACE}
    assert (await world.get("/v1/reservations", headers=sent)).headers["x-cycles-trace-id"] == OTHER_TRACE
    sent = {"traceparent": "00-nonsense", "X-Cycles-Trace-Id": "0" * 32}
    fresh = (await world.get("/v1/reservations", headers=sent)).headers["x-cycles-trace-id"]
    assert fresh not in (TRACE, OTHER_TRACE, "0" * 32)


async def test_an_error_carries_the_trace_that_the_client_named(world: World) -> None:
    answer = await world.get("/v1/reservations", by=None, headers={"X-Cycles-Trace-Id": TRACE})
    assert refused(answer) == (401, "UNAUTHORIZED")
    assert answer.json()["trace_id"] == TRACE


async def test_documents_are_compact(world: World) -> None:
    await world.budget(TENANT, 10)
    answer = await world.reserve(1)
    assert answer.text == json.dumps(answer.json(), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v1/", "/v1/nothing", "/v1/reservations/x/y", "/v1/webhooks/x/y", "/v1/reservations/"],
)
async def test_an_unknown_path_is_not_found(world: World, path: str) -> None:
    """Also what the protocol has and this server has not: to its clients it is not there."""
    for method in ("GET", "POST", "DELETE"):
        answer = await world.client.request(method, path, headers={"X-Cycles-API-Key": world.secrets[ACME]})
        check_answer(answer, judged=False)
        assert refused(answer) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/decide", "POST"),
        ("DELETE", "/v1/reservations", "GET, POST"),
        ("PUT", "/v1/reservations/x", "GET"),
        ("GET", "/v1/reservations/x/commit", "POST"),
        ("DELETE", "/v1/events", "GET, POST"),
        ("POST", "/v1/balances", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_named_so(
    world: World, method: str, path: str, allowed: str
) -> None:
    answer = await world.client.request(method, path, headers={"X-Cycles-API-Key": world.secrets[ACME]})
    check_answer(answer, judged=False)
    assert refused(answer) == (405, INVALID)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
async def test_a_body_of_another_kind_is_refused(world: World, content_type: str) -> None:
    answer = await world.ask("POST", "/v1/decide", world.request(1), headers={"Content-Type": content_type})
    assert refused(answer) == (415, INVALID)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/ld+json"])
async def test_json_by_any_of_its_names_is_taken(world: World, content_type: str) -> None:
    await world.budget(TENANT, 10)
    ok(await world.ask("POST", "/v1/decide", world.request(1), headers={"Content-Type": content_type}))


async def test_a_body_has_a_mebibyte_at_most(world: World) -> None:
    await world.budget(TENANT, 10)
    request = world.request(1, metadata={"fill": ""})
    room = BODY_MAX - len(json.dumps(request, separators=(",", ":")))
    for extra, status in ((0, 200), (1, 413)):
        sent = json.dumps({**request, "metadata": {"fill": "x" * (room + extra)}}, separators=(",", ":"))
        headers = {"X-Cycles-API-Key": world.secrets[ACME], "Content-Type": "application/json"}
        answer = await world.client.post("/v1/decide", content=sent, headers=headers)
        check_answer(answer)
        assert answer.status_code == status


@pytest.mark.parametrize("sent", [b"", b"null", b"[]", b"{", b"\xff", b'{"a":1,"a":1}', b'{"a":NaN}'])
async def test_what_is_no_json_object_is_an_invalid_request(world: World, sent: bytes) -> None:
    headers = {"X-Cycles-API-Key": world.secrets[ACME], "Content-Type": "application/json"}
    answer = await world.client.post("/v1/decide", content=sent, headers=headers)
    check_answer(answer)
    assert refused(answer) == (400, INVALID)


async def test_an_invalid_request_names_its_field(world: World) -> None:
    answer = await world.reserve({"unit": "EUR", "amount": 1})
    assert refused(answer) == (400, INVALID)
    assert answer.json()["details"] == {"field": "estimate.unit", "reason": "wrong-type"}


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/reservations", {"limit": "0"}),
        ("/v1/reservations", {"limit": "201"}),
        ("/v1/reservations", {"limit": "ten"}),
        ("/v1/reservations", {"status": "FOO"}),
        ("/v1/reservations", {"sort_by": "foo"}),
        ("/v1/reservations", {"sort_dir": "foo"}),
        ("/v1/reservations", {"cursor": "nonsense"}),
        ("/v1/reservations", {"from_": "yesterday"}),
        ("/v1/reservations", {"from_": "2027-01-15T08:00:00"}),
        ("/v1/balances", {}),
        ("/v1/balances", {"include_children": "false"}),
        ("/v1/balances", {"tenant": ACME, "include_children": "maybe"}),
        ("/v1/balances", {"tenant": ACME, "limit": "201"}),
    ],
)
async def test_s116_a_malformed_parameter_is_an_invalid_request(
    world: World, path: str, params: dict[str, Any]
) -> None:
    assert refused(await world.get(path, **params)) == (400, INVALID)


async def test_s116_an_unknown_parameter_is_passed_over(world: World) -> None:
    assert ok(await world.get("/v1/reservations", surprise="yes"))["reservations"] == []


async def test_throttling_tells_when_to_come_again(world: World) -> None:
    await world.budget(TENANT, 10)
    limits = {"max_reservations_per_minute": 1}
    policy = {"tenant_id": ACME, "name": "slow", "scope_pattern": TENANT, "rate_limits": limits}
    ok(await world.post("/v1/admin/policies", policy, by=ADMIN), 201)
    world.clock.advance(500)
    ok(await world.reserve(1))
    answer = await world.reserve(1)
    assert refused(answer) == (429, "LIMIT_EXCEEDED")
    assert answer.headers["retry-after"] == "60"
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert answer.headers["x-ratelimit-reset"] == str(B // 1_000 + 60)
    world.clock.advance(59_500)
    ok(await world.reserve(1))


async def test_answers_under_a_limit_tell_what_is_left_of_it(world: World) -> None:
    """Real values where limiting is on, and nothing elsewhere (1.0, decision 35)."""
    await world.budget(TENANT, 10)

    def told(answer: Any) -> tuple[str | None, ...]:
        ok(answer)
        return tuple(answer.headers.get(f"x-ratelimit-{name}") for name in ("remaining", "reset"))

    assert told(await world.reserve(1)) == (None, None)
    limits = {"max_reservations_per_minute": 3, "max_commits_per_minute": 2}
    policy = {"tenant_id": ACME, "name": "slow", "scope_pattern": TENANT, "rate_limits": limits}
    ok(await world.post("/v1/admin/policies", policy, by=ADMIN), 201)
    reset = str(B // 1_000 + 60)
    assert told(await world.decide(1)) == ("3", reset)
    first = await world.reserve(1, idempotency_key="first")
    assert told(first) == ("2", reset)
    assert told(await world.reserve(1, idempotency_key="first")) == (None, None), "nothing was counted"
    assert told(await world.reserve(1, dry_run=True)) == ("2", reset)
    assert told(await world.reserve(1)) == ("1", reset)
    assert told(await world.commit(first.json()["reservation_id"], 1)) == ("1", reset)
    assert told(await world.reserve(1)) == ("0", reset)
    assert refused(await world.reserve(1)) == (429, "LIMIT_EXCEEDED")
    world.clock.advance(60_001)
    assert told(await world.decide(1)) == ("3", str(B // 1_000 + 120))
    assert told(await world.get("/v1/reservations")) == (None, None)


async def test_what_nobody_expected_is_an_internal_error_without_a_word_about_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.budget(TENANT, 10)
    async with world.node.database.transaction() as connection:
        await connection.execute("alter table budget rename to budget_gone")
    world.clock.advance(1)
    answer = await world.get("/v1/balances", tenant=ACME)
    assert refused(answer) == (500, "INTERNAL_ERROR")
    assert "budget_gone" not in answer.text
    assert "an operation failed" in caplog.text


async def test_a_full_mailbox_is_throttling_and_passes(world: World) -> None:
    await world.budget(TENANT, 10)
    waiting: list[asyncio.Task[Any]] = []
    blocker = await world.node.database.connect()
    try:
        await blocker.execute("begin")
        await blocker.execute("select 1 from budget_tenant where tenant_id = 'acme' for update")
        answer = await _ask_a_full_mailbox(world, waiting)
        assert refused(answer) == (429, "LIMIT_EXCEEDED")
        assert answer.headers["retry-after"] == "1"
        await blocker.execute("rollback")
        await asyncio.gather(*waiting, return_exceptions=True)
        ok(await world.decide(1))
    finally:
        await blocker.close()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _ask_a_full_mailbox(world: World, waiting: list[asyncio.Task[Any]]) -> Any:
    """Its batches cannot get their lock. One that is given up makes room: then there is too little in it, once more."""
    await _fill_mailbox(world, waiting, MAILBOX_MAX + BATCH_MAX)
    await lock_waiter(world.node.database)
    while True:
        await _fill_mailbox(world, waiting, 3 * BATCH_MAX)
        answer = await world.decide(1)
        if answer.status_code != 500:
            return answer


async def _fill_mailbox(world: World, waiting: list[asyncio.Task[Any]], count: int) -> None:
    """Ask so often, until some of it is not taken in."""
    principal = await world.node.authenticator.authenticate(world.secrets[ACME])
    assert principal is not None
    given = {"subject": Subject(tenant=ACME), "action": Action(kind="k", name="n"), "estimate": Amount(Unit.TOKENS, 0)}
    asking = [
        asyncio.create_task(
            world.node.budgets.evaluate(Caller(principal=principal), idempotency_key=world.key(), **given)
        )
        for _ in range(count)
    ]
    waiting += asking
    await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)


async def test_a_node_that_stops_is_a_fault_that_a_client_retries(world: World) -> None:
    await world.budget(TENANT, 10)
    await world.node.stop()
    assert refused(await world.reserve(1)) == (500, "INTERNAL_ERROR")


@pytest.mark.parametrize("path", ["/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness"])
async def test_health_is_where_deployments_look_for_it(world: World, path: str) -> None:
    answer = await world.client.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "UP"})
    assert (await world.client.head(path)).status_code == 200


async def test_an_answer_names_one_trace_in_all_its_headers(world: World) -> None:
    for headers in ({}, {"x-cycles-trace-id": "1" * 32}, {"traceparent": f"00-{'2' * 32}-{'3' * 16}-01"}):
        answer = await world.get("/v1/balances", tenant=ACME, headers=headers)
        assert answer.headers["traceparent"].split("-")[1] == answer.headers["x-cycles-trace-id"]
