"""Operations nobody would write, with arguments nobody would give: each is answered or refused, none breaks anything.

They are drawn from the printed schema, always the same ones; some of their arguments then name things that exist, so
that more happens than NOT_FOUND.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from graphql import (
    ArgumentNode,
    DocumentNode,
    EnumValueNode,
    GraphQLSchema,
    IntValueNode,
    ListValueNode,
    ObjectFieldNode,
    StringValueNode,
    Visitor,
    build_schema,
    parse,
    print_ast,
    visit,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis_graphql import mutations, nodes, queries

from schema.failures import INTERNAL
from schema.root import schema
from tests.schema.world import BASE, HOUR, World

EACH = int(os.environ.get("EARMARK_TEST_OPERATIONS", "30"))
"""Operations of each kind: `make fuzz` asks for more."""
AS_TENANT = 3
"""Every third is asked with a tenant's key instead of root's."""

MILLIS = st.one_of(st.integers(0, 2**53 - 1), st.integers(BASE - 48 * HOUR, BASE + 48 * HOUR))
INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10, 1_000), st.integers(2**63, 2**70))
SCALARS = {
    "Millis": MILLIS.map(nodes.Int),
    "Int64": st.one_of(INT64.map(nodes.Int), INT64.map(str).map(nodes.String)),
    "JSON": st.one_of(st.text(max_size=5).map(nodes.String), st.integers().map(nodes.Int), st.just(nodes.Null)),
    "JSONObject": st.just(nodes.Object([])),
}


def drawn(strategy: st.SearchStrategy[str]) -> list[str]:
    found: list[str] = []

    @settings(
        max_examples=EACH,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(document: str) -> None:
        found.append(document)

    draw()
    return found


class Known(Visitor):
    """Puts what exists in the place of most arguments whose names ask for it."""

    def __init__(self, things: dict[str, Sequence[str]], chance: random.Random) -> None:
        super().__init__()
        self._things = things
        self._chance = chance

    def enter_argument(self, node: ArgumentNode, *_: Any) -> ArgumentNode | None:
        return self._known(node)

    def enter_object_field(self, node: ObjectFieldNode, *_: Any) -> ObjectFieldNode | None:
        return self._known(node)

    def _known(self, node: Any) -> Any:
        choices = self._things.get(node.name.value)
        if not choices or self._chance.random() < 0.25:
            return None
        value: Any = StringValueNode(value=self._chance.choice(choices))
        if isinstance(node.value, ListValueNode):
            value = ListValueNode(values=(value,))
        elif isinstance(node.value, IntValueNode | EnumValueNode):
            return None
        return type(node)(name=node.name, value=value)


async def things_of(world: World) -> dict[str, Sequence[str]]:
    """Arguments by name, and what there is to give them."""
    reservation_id = await world.add_reservation("res", total=8)
    grant = await world.create_grant()
    instance = await world.run_instance("a")
    tenants, projects = ["a", "b", "root"], list(world.projects.values())
    ids = [grant["id"], instance["id"], reservation_id, *projects, *tenants]
    scopes = ["tenant:a", "tenant:a/agent:x", "tenant:b"]
    for scope in scopes:
        allocated = {"unit": "TOKENS", "amount": "1000"}
        wanted = {"tenantId": scope[7:8], "scope": scope, "unit": "TOKENS", "allocated": allocated}
        await world.mutate("createBudget", wanted)
    return {
        **dict.fromkeys(("tenantId", "grantTenantId", "parentTenantId"), tenants),
        **dict.fromkeys(("id", "ids"), ids),
        "projectId": projects,
        "accountId": [world.account_id],
        "reservationId": ["res"],
        "poolId": ["pool"],
        "grantId": [grant["id"]],
        "instanceId": [instance["id"]],
        "flavor": ["a3"],
        "scope": scopes,
        "tenant": ["a", "b"],
        "agent": ["x"],
    }


def documents(graph: GraphQLSchema, things: dict[str, Sequence[str]]) -> Iterator[DocumentNode]:
    chance = random.Random(1)
    for strategy in (queries, mutations):
        for document in drawn(strategy(graph, custom_scalars=SCALARS)):
            yield visit(parse(document), Known(things, chance))


@pytest.mark.timeout(300 + 2 * EACH)
async def test_no_operation_brings_out_a_fault_of_ours(world: World) -> None:
    things = await things_of(world)
    codes: Counter[str | None] = Counter()
    for number, document in enumerate(documents(build_schema(str(schema)), things)):
        text = print_ast(document)
        caller = world.callers["a"] if number % AS_TENANT == 0 else world.root
        result = await world.ask(text, caller)
        for error in result.errors or ():
            code = (error.extensions or {}).get("code")
            codes[code] += 1
            assert code not in (INTERNAL, None), (text, error)
        if result.data is not None:
            codes["answered"] += 1
    assert codes["answered"] > EACH // 2, codes
