"""Every field of the printed schema's roots, walked: none answers without a key, without a permission, or about another
tenant. A field that is added is walked too, and fails here until it asks who is asking."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx2
from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    build_schema,
    get_named_type,
    is_leaf_type,
)
from strawberry.types import ExecutionResult

from schema.root import sdl
from server.asgi import create_app
from server.settings import Settings
from tests.schema.world import World
from workers.request import Caller

GRAPH: Final[GraphQLSchema] = build_schema(sdl())
OPEN_TO_ANY_KEY: Final = frozenset({"viewer"})
DENIED: Final = frozenset({"ACCESS_DENIED"})
OFFERED: Final = frozenset({"pool", "pools", "poolOffers"})
"""The pool is offered to everybody."""
OWN: Final = frozenset({"tenants"})
"""It names no tenant, and so is answered about one's own."""
OUTCOME: Final = "__typename ... on Refusal { code }"
BELOW: Final = ("nodes", "tenant", "records", "totals")
"""Fields that are looked through: what is at hand of them is asked for too."""
HIDDEN: Final = DENIED | {"NOT_FOUND", "BUDGET_NOT_FOUND"}
"""Whoever must not see a thing is told that it does not exist."""


@dataclass(frozen=True)
class Root:
    operation: str
    field: str

    @property
    def definition(self) -> GraphQLField:
        roots = {"query": GRAPH.query_type, "mutation": GRAPH.mutation_type, "subscription": GRAPH.subscription_type}
        kind = roots[self.operation]
        assert kind is not None
        return kind.fields[self.field]


def roots() -> Iterator[Root]:
    for operation, kind in (
        ("query", GRAPH.query_type),
        ("mutation", GRAPH.mutation_type),
        ("subscription", GRAPH.subscription_type),
    ):
        assert kind is not None
        yield from (Root(operation, field) for field in kind.fields)


Things = dict[str, Any]
"""Argument or `field.argument` to what tenant a has."""


def argument(name: str, kind: GraphQLInputType, things: Things, field: str) -> Any:
    """A value of the kind, naming what is tenant a's wherever something is named."""
    for known in (f"{field}.{name}", name):
        if known in things:
            return things[known]
    inner = kind.of_type if isinstance(kind, GraphQLNonNull) else kind
    if isinstance(inner, GraphQLList):
        return [argument(name, inner.of_type, things, field)]
    if isinstance(inner, GraphQLInputObjectType):
        wanted = {key: item.type for key, item in inner.fields.items() if _is_asked_for(key, item, things, field)}
        return {key: argument(key, item, things, field) for key, item in wanted.items()}
    if isinstance(inner, GraphQLEnumType):
        return next(iter(inner.values))
    return {"Boolean": False, "JSON": {}, "JSONObject": {}}.get(str(inner), 1 if str(inner) != "String" else "word")


def _is_asked_for(name: str, item: Any, things: Things, field: str) -> bool:
    has_default = item.ast_node is not None and item.ast_node.default_value is not None
    return (
        (isinstance(item.type, GraphQLNonNull) and not has_default) or name == "tenantId" or f"{field}.{name}" in things
    )


def selection(kind: Any, depth: int = 2) -> str:
    """Everything at hand of an object, and of what hangs on it; of a union only which it is."""
    inner = get_named_type(kind)
    if is_leaf_type(inner):
        return ""
    if isinstance(inner, GraphQLUnionType):
        batches = [kind.name for kind in inner.types if "outcomes" in kind.fields]
        return f"{{ {OUTCOME} {' '.join(f'... on {name} {{ outcomes {{ {OUTCOME} }} }}' for name in batches)} }}"
    assert isinstance(inner, GraphQLObjectType)
    parts = []
    for name, field in inner.fields.items():
        below = get_named_type(field.type)
        if not any(isinstance(item.type, GraphQLNonNull) for item in field.args.values()) and (
            is_leaf_type(below) or (depth > 0 and isinstance(below, GraphQLObjectType) and name in BELOW)
        ):
            parts.append(f"{name} {selection(below, depth - 1)}")
    return "{ " + " ".join(["__typename", *parts]) + " }"


def document(root: Root, things: Things) -> tuple[str, dict[str, Any]]:
    """The operation, and its variables."""
    wanted = {
        name: item for name, item in root.definition.args.items() if _is_asked_for(name, item, things, root.field)
    }
    values = {name: argument(name, item.type, things, root.field) for name, item in wanted.items()}
    declared = ", ".join(f"${name}: {item.type}" for name, item in wanted.items())
    passed = ", ".join(f"{name}: ${name}" for name in wanted)
    head = f"{root.operation} ({declared})" if declared else root.operation
    call = f"{root.field}({passed})" if passed else root.field
    return f"{head} {{ {call} {selection(root.definition.type)} }}", values


async def things_of(world: World) -> Things:
    """One of everything that tenant a can have, and what root has made it of."""
    a = world.callers["a"]
    grant, instance = await world.create_grant(), await world.run_instance("a")
    allocated, hold = {"unit": "TOKENS", "amount": 1_000}, {"unit": "TOKENS", "amount": 1}
    shape = {"idempotencyKey": "hold", "subject": {"tenant": "a"}, "action": {"kind": "k", "name": "n"}}
    made = {"scope": "tenant:a", "unit": "TOKENS", "allocated": allocated}
    await world.mutate("createBudget", made, caller=a)
    held = await world.mutate(
        "reserveBudget", {**shape, "estimate": hold}, "... on BudgetHold { reservationId }", caller=a
    )
    policy = await world.mutate(
        "createPolicy", {"name": "p", "scopePattern": "tenant:a"}, "... on BudgetPolicy { id }", caller=a
    )
    hook = await world.mutate(
        "createWebhook",
        {"tenantId": "a", "url": "https://hooks.example.com/a", "eventTypes": ["budget.exhausted"]},
        "... on CreatedWebhook { webhook { id } }",
    )
    key_id, hook_id = a.principal.key_id, hook["webhook"]["id"]
    reservation = f"{world.account_id}/res"
    ids = {
        "tenant": "a", "project": world.projects["a"], "apiKey": key_id, "providerAccount": world.account_id,
        "pool": "pool", "capacityReservation": reservation, "capacityReservationChanged": reservation,
        "grant": grant["id"], "instance": instance["id"], "budgetReservation": held["reservationId"],
        "policy": policy["id"], "webhook": hook_id,
    }  # fmt: skip
    return {
        **{f"{field}.id": value for field, value in ids.items()},
        **dict.fromkeys(("createGrant.tenantId", "createGrants.tenantId", "planGrant.tenantId"), "root"),
        **dict.fromkeys(("endGrant.tenantId", "amendGrant.tenantId"), "root"),
        **{f"{word}Budget.reservationId": held["reservationId"] for word in ("commit", "release", "extend")},
        "createBudget.scope": "tenant:a/agent:new",
        "tenantId": "a", "grantTenantId": "a", "ownerTenantId": "a", "offeredTo": "a", "tenant": "a",
        "projectId": world.projects["a"], "accountId": world.account_id, "reservationId": "res", "poolId": "pool",
        "grantId": grant["id"], "instanceId": instance["id"], "policyId": policy["id"], "webhookId": hook_id,
        "keyId": key_id, "scope": "tenant:a", "scopePattern": "tenant:a", "unit": "TOKENS", "flavor": "a3",
        "url": "https://hooks.example.com/b", "eventTypes": ["budget.exhausted"], "region": "eu-1", "kind": "push",
        "startsAt": world.clock.now, "endsAt": world.clock.now + 3_600_000, "idempotencyKey": "another",
        "subject": {"tenant": "a"}, "startingSoonMs": 60_000,
    }  # fmt: skip


async def answered(world: World, root: Root, things: Things, caller: Caller) -> ExecutionResult:
    """The answer, or a subscription's first or its refusal."""
    text, values = document(root, things)
    if root.operation != "subscription":
        return await world.ask(text, caller, **values)
    stream = await world.stream(text, caller, **values)
    if hasattr(stream, "errors"):
        refused: ExecutionResult = stream
        return refused
    try:
        first: ExecutionResult = await anext(stream)
        return first
    finally:
        await stream.aclose()


def code_of(root: Root, result: ExecutionResult) -> str:
    """Why nothing was answered: a code, `null`, or `answered`; of a batch, why its one thing was not."""
    if result.errors:
        return str((result.errors[0].extensions or {}).get("code", result.errors[0].message))
    value = (result.data or {}).get(root.field)
    if isinstance(value, dict) and "outcomes" in value:
        (value,) = value["outcomes"]
    if value is None:
        return "null"
    return str(value.get("code", "answered")) if isinstance(value, dict) else "answered"


async def test_a_key_without_permissions_is_answered_nothing(world: World) -> None:
    things = await things_of(world)
    for of in (world.callers["a"], world.root):
        powerless = replace(of, principal=replace(of.principal, permissions=frozenset()))
        told = {root.field: code_of(root, await answered(world, root, things, powerless)) for root in roots()}
        assert {field for field, code in told.items() if code not in DENIED} == OPEN_TO_ANY_KEY


async def test_another_tenants_key_learns_nothing_and_changes_nothing(world: World) -> None:
    things = await things_of(world)
    before, seen = await everything(world), set()
    for root in roots():
        result = await answered(world, root, things, world.callers["b"])
        code = code_of(root, result)
        if code == "answered":
            seen.add(root.field)
            assert not [name for name in secrets_of(things) if name in json.dumps(result.data)], root
        else:
            assert code in HIDDEN or (code == "null" and root.operation == "query"), (root, code)
    assert seen == OPEN_TO_ANY_KEY | OFFERED | OWN
    assert await everything(world) == before


def secrets_of(things: Things) -> set[str]:
    """The ids of what is tenant a's alone."""
    return {str(things[name]) for name in ("projectId", "grantId", "instanceId", "policyId", "webhookId", "keyId")}


async def everything(world: World) -> str:
    document = """{ budget(scope: "tenant:a", unit: TOKENS, tenantId: "a") { remaining reserved spent status }
        grants(all: true) { nodes { id state slots version } } instances(all: true) { nodes { id runState } } }"""
    return json.dumps(await world.data(document))


async def test_without_a_key_no_field_is_answered(world: World) -> None:
    things = await things_of(world)
    app = create_app(Settings(data_dir=Path("/nonexistent")), "", runtime=world.runtime)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as client,
    ):
        for root in roots():
            text, values = document(root, things)
            response = await client.post("/graphql", json={"query": text, "variables": values})
            assert response.status_code == 401, root
            assert response.json()["errors"][0]["extensions"]["code"] == "UNAUTHENTICATED", root
