"""One execution and one encoding of an event for all who listen with the same document, and never a wrong one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from graphql import ExecutionResult, OperationDefinitionNode, parse

from domain.events import EventRecord
from schema.events import Event
from schema.root import schema
from schema.sharing import SharingExecutor, Told, _is_shared
from tests.schema.world import World, until

RECORD: dict[str, Any] = {
    "stream": "a",
    "seq": 7,
    "event_id": 'evt_"quoted"',
    "tenant_id": "a",
    "type": "reservation-grant.created",
    "occurred_at": 1,
    "recorded_at": 2,
    "payload": {"grantId": "g", "slots": 3, "startsAt": 1, "endsAt": 2},
}
FRAGMENT = "fragment F on Event { type ...G } fragment G on Event { slots payload }"


def operation_of(document: str) -> tuple[OperationDefinitionNode, dict[str, Any]]:
    parsed = parse(document)
    first, *fragments = parsed.definitions
    assert isinstance(first, OperationDefinitionNode)
    return first, {node.name.value: node for node in fragments}


@pytest.mark.parametrize(
    ("document", "shared"),
    [
        ("subscription { grantEvents { seq } }", True),
        ("subscription ($after: String) { grantEvents(after: $after) { seq type } }", True),
        ("subscription ($after: String) { grantEvents(after: $after) { ...F } } " + FRAGMENT, True),
        ("subscription ($x: Boolean!) { grantEvents { seq type @include(if: $x) } }", False),
        ("subscription ($x: Boolean!) { grantEvents { ... @skip(if: $x) { seq } } }", False),
        (
            "subscription ($x: Boolean!) { grantEvents { ...F } } "  # noqa: ISC004 - one document
            "fragment F on Event { ...G } fragment G on Event { seq @skip(if: $x) }",
            False,
        ),
    ],
)
def test_what_no_variable_reaches_is_shared(document: str, shared: bool) -> None:
    assert _is_shared(*operation_of(document)) is shared


DOCUMENTS = (
    "subscription { grantEvents { id cursor seq type tenantId occurredAt recordedAt payload } }",
    "subscription { grantEvents { other: seq __typename projectId reason } }",
    "subscription ($after: String) { grantEvents(after: $after) { ...F seq } } " + FRAGMENT,
    "subscription ($x: Boolean = true) { grantEvents { seq type @include(if: $x) } }",
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_an_answer_from_memory_is_the_answer_that_execution_gives(document: str) -> None:
    """The same whoever asks first, and the second time no field is looked at."""
    core = schema._schema
    executor = SharingExecutor.build(core, parse(document))
    assert isinstance(executor, SharingExecutor)
    event = Event.of(EventRecord(**RECORD))
    alone = Event.of(EventRecord(**RECORD))
    alone.answers = None  # type: ignore[assignment] - as if it had no memory
    expected = executor.build_per_event_executor(alone).execute_operation(False)
    results = [executor.build_per_event_executor(event).execute_operation(False) for _ in range(3)]
    assert all(isinstance(result, ExecutionResult) for result in results)
    assert expected.errors is None
    assert [result.data for result in results] == [expected.data] * 3
    assert (results[1] is results[2]) is ("$x" not in document)


def test_every_document_has_an_answer_of_its_own() -> None:
    event = Event.of(EventRecord(**RECORD))
    shown = []
    for selection in ("seq", "type", "seq type"):
        executor = SharingExecutor.build(schema._schema, parse(f"subscription {{ grantEvents {{ {selection} }} }}"))
        assert isinstance(executor, SharingExecutor)
        shown.append(executor.build_per_event_executor(event).execute_operation(False).data["grantEvents"])
    assert shown == [{"seq": "7"}, {"type": RECORD["type"]}, {"seq": "7", "type": RECORD["type"]}]


def test_an_answer_is_encoded_once() -> None:
    told, asked = Told({"x": 1}), []

    def encode(data: Told) -> str:
        asked.append(data)
        return json.dumps(data)

    assert [told.encoded(encode) for _ in range(3)] == ['{"x": 1}'] * 3
    assert len(asked) == 1


async def test_listeners_with_filters_of_their_own_get_their_own_events(world: World) -> None:
    """Filters and cursors are the root field's: they choose events, and do not change what is shown of them."""
    document = "subscription ($types: [String!]) { grantEvents(types: $types) { seq type } }"
    wanted = [None, ["reservation-grant.created"], ["reservation-grant.active"]]
    streams = [await world.stream(document, world.callers["a"], types=types) for types in wanted for _ in range(2)]
    asked = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await until(lambda: world.runtime.hub.count == len(streams))
    await world.create_grant(slots=1)
    heard = [(await each).data["grantEvents"]["type"].rpartition(".")[2] for each in asked]
    assert heard == ["created", "created", "created", "created", "active", "active"]
    for stream in streams:
        await stream.aclose()
