"""Top-level errors: each with a code, and nothing of what goes on inside."""

from __future__ import annotations

import logging

import asyncpg
import pytest
from graphql import GraphQLError

from schema.context import Context
from schema.failures import described
from schema.root import schema
from storage.database import Unavailable
from tests.schema.world import World
from workers.actor import Overloaded, Stopped
from workers.events import SubscriptionClosed


@pytest.mark.parametrize(
    ("raised", "extensions"),
    [
        (Overloaded(3), {"code": "OVERLOADED", "retryAfter": 3}),
        (Unavailable("the database did not answer"), {"code": "UNAVAILABLE"}),
        (Stopped(), {"code": "UNAVAILABLE"}),
        (SubscriptionClosed("SLOW_CONSUMER", "m", "c"), {"code": "SLOW_CONSUMER", "cursor": "c"}),
        (SubscriptionClosed("SHUTTING_DOWN", "m"), {"code": "SHUTTING_DOWN"}),
        (ValueError("a secret"), {"code": "INTERNAL", "requestId": "req_1"}),
        (GraphQLError("a scalar could not be shown"), {"code": "INTERNAL", "requestId": "req_1"}),
    ],
)
def test_every_failure_in_a_field_has_a_code(raised: Exception, extensions: dict[str, object]) -> None:
    error = GraphQLError(str(raised), original_error=raised, path=["grants"])
    shown = described(error, request_id="req_1")

    assert shown.extensions == extensions
    assert shown.path == ["grants"]
    assert "secret" not in shown.message


async def test_a_fault_of_ours_is_masked_and_logged_under_its_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await asyncpg.connect(world.runtime.database.url)
    await connection.execute("alter table pool rename to no_pool")
    await connection.close()

    with caplog.at_level(logging.ERROR):
        result = await world.ask("{ pools { nodes { id } } viewer { tenant { id } } }")

    assert result.data == {"pools": None, "viewer": {"tenant": {"id": "root"}}}
    assert result.errors is not None
    assert [(error.message, error.extensions) for error in result.errors] == [
        ("Internal error", {"code": "INTERNAL", "requestId": "req_root"})
    ]
    logged = [record for record in caplog.records if record.name == "earmark.graphql"]
    assert [(record.request_id, record.field) for record in logged] == [("req_root", "pools")]  # type: ignore[attr-defined]
    assert logged[0].exc_info is not None
    assert isinstance(logged[0].exc_info[1], asyncpg.PostgresError)


async def test_a_clients_mistake_is_not_logged_as_our_fault(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for document in ("{", "{ nope }", "{ grants(first: -1) { nodes { id } } }", '{ grant(id: "x") { id } }'):
        assert (await world.ask(document)).errors is not None
    await world.ask("query ($all: Boolean = false) { grants(all: $all) { nodes { id } } }", all=None)
    await world.ask("query ($first: Int) { grants(first: $first) { nodes { id } } }", first="many")

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_null_variable_where_none_may_be_is_invalid_input(world: World) -> None:
    result = await world.ask("query ($all: Boolean = false) { grants(all: $all) { nodes { id } } }", all=None)

    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "INVALID_INPUT"


async def test_a_node_that_has_stopped_says_that_asking_again_is_safe(world: World) -> None:
    await world.runtime.stop()
    refused = await world.ask(
        "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { __typename } }",
        world.callers["a"],
        input={"projectId": world.projects["a"], "flavor": "a3", "name": "one"},
    )

    assert refused.data == {"createInstance": None}
    assert refused.errors is not None
    assert (refused.errors[0].extensions or {})["code"] == "UNAVAILABLE"


async def test_one_failed_mutation_leaves_the_results_of_the_others(world: World) -> None:
    document = """mutation ($good: CreatePoolInput!, $bad: CreatePoolInput!) {
      good: createPool(input: $good) { __typename } bad: createPool(input: $bad) { __typename }
    }"""
    result = await world.ask(document, good={"poolId": "p2", "name": "p"}, bad={"poolId": "p2", "name": "other"})

    assert result.data == {"good": {"__typename": "Pool"}, "bad": {"__typename": "Conflict"}}


async def test_nobody_asks_without_a_key(world: World) -> None:
    result = await schema.execute("{ viewer { tenant { id } } }", context_value=Context(runtime=world.runtime))

    assert result.data is None
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "UNAUTHENTICATED"
