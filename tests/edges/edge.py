"""One way to ask for grants, and the two edges behind it: a story that is told over `Edge` is told over both.

What an edge answers is brought to one form: the grant as the REST wire spells it, or what it was refused with. Every
REST answer is held against the OpenAPI document on its way.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import httpx2
import jsonschema

from server.rest import openapi

Fields: TypeAlias = Mapping[str, Any]

PAGE = 200
"""Grants that GraphQL gives at a time."""


@dataclass(frozen=True)
class Refused:
    """`details` without what is absent."""

    code: str
    details: Fields = field(default_factory=dict)


Answer: TypeAlias = "dict[str, Any] | Refused"


class Edge(Protocol):
    """`secret` is the API key to ask with; None: none at all."""

    name: str

    async def create(self, given: Fields, *, secret: str | None) -> Answer: ...

    async def get(self, given: Fields, *, secret: str | None) -> Answer: ...

    async def list(self, given: Fields, *, secret: str | None) -> Sequence[dict[str, Any]] | Refused: ...

    async def end(self, given: Fields, *, secret: str | None) -> Answer: ...


# -- REST --------------------------------------------------------------------------------------------------------------


@functools.cache
def _document() -> dict[str, Any]:
    return openapi.document("0")


def check_documented(method: str, response: httpx2.Response) -> None:
    """The status is one of the operation's, and the body has the form that the document promises for it."""
    document = _document()
    responses = document["paths"][f"/api/compute/reservationGrants/{method}"]["post"]["responses"]
    assert str(response.status_code) in responses, f"{method} answered {response.status_code}: {response.text}"
    assert response.headers["content-type"] == "application/json"
    promised = responses[str(response.status_code)]["content"]["application/json"]["schema"]
    schema = {**promised, "components": document["components"]}
    jsonschema.validate(response.json(), schema, cls=jsonschema.Draft202012Validator)


class RestEdge:
    name = "rest"

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def create(self, given: Fields, *, secret: str | None) -> Answer:
        return await self._ask("create", given, secret)

    async def get(self, given: Fields, *, secret: str | None) -> Answer:
        return await self._ask("get", given, secret)

    async def list(self, given: Fields, *, secret: str | None) -> Sequence[dict[str, Any]] | Refused:
        answer = await self._ask("list", given, secret)
        if isinstance(answer, Refused):
            return answer
        assert answer.keys() == {"items"}
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def end(self, given: Fields, *, secret: str | None) -> Answer:
        return await self._ask("end", given, secret)

    async def _ask(self, method: str, given: Fields, secret: str | None) -> Answer:
        headers = {} if secret is None else {"X-API-Key": secret}
        response = await self._client.post(
            f"/api/compute/reservationGrants/{method}", json=dict(given), headers=headers
        )
        check_documented(method, response)
        body: dict[str, Any] = response.json()
        if response.status_code == 200:
            return body
        error = body["error"]
        return Refused(error["code"], error.get("details", {}))


# -- GraphQL -----------------------------------------------------------------------------------------------------------

_GRANT = "id state tenantId projectId accountId reservationId poolId slots startsAt endsAt createdAt"
_REFUSED = """
    ... on Refusal { code }
    ... on InvalidInput { field invalid: reason }
    ... on InvalidState { refusedState: currentState grantIds }
    ... on Conflict { conflict: reason conflictGrantId: grantId conflictVersion: currentVersion }
"""
_CREATE = f"""mutation ($input: CreateGrantInput!) {{ answer: createGrant(input: $input) {{
    __typename ... on Grant {{ {_GRANT} }} ... on CapacityUnavailable {{ total granted }} {_REFUSED} }} }}"""
_END = f"""mutation ($input: EndGrantInput!) {{ answer: endGrant(input: $input) {{
    __typename ... on Grant {{ {_GRANT} }} {_REFUSED} }} }}"""
_GET = f"query ($grantId: ID!, $tenantId: ID!) {{ answer: grant(id: $grantId, tenantId: $tenantId) {{ {_GRANT} }} }}"
_LIST = f"""query ($tenantId: ID!, $all: Boolean!, $first: Int, $after: String) {{
    answer: grants(tenantId: $tenantId, all: $all, first: $first, after: $after) {{
        nodes {{ {_GRANT} }} pageInfo {{ hasNextPage endCursor }} }} }}"""

_AS_ON_THE_WIRE = {
    "id": "grantId",
    "invalid": "reason",
    "refusedState": "state",
    "conflict": "reason",
    "conflictGrantId": "grantId",
    "conflictVersion": "version",
}


def on_the_wire(shown: Fields) -> dict[str, Any]:
    """The fields that are there, by the wire's names."""
    return {
        _AS_ON_THE_WIRE.get(name, name): value
        for name, value in shown.items()
        if value is not None and name not in ("__typename", "code")
    }


def grant_of(shown: Fields) -> dict[str, Any]:
    return on_the_wire({**shown, "state": shown["state"].lower()})


def failure_of(errors: Sequence[Fields]) -> Refused:
    """What stands at the top level of an answer: a refused read, or what is no value of the schema's types."""
    (error,) = errors
    extensions = dict(error["extensions"])
    code = extensions.pop("code")
    return Refused(code, extensions)


class GraphQLEdge:
    name = "graphql"

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def create(self, given: Fields, *, secret: str | None) -> Answer:
        return self._outcome(await self._ask(_CREATE, {"input": dict(given)}, secret))

    async def get(self, given: Fields, *, secret: str | None) -> Answer:
        answer = await self._ask(_GET, given, secret)
        if isinstance(answer, Refused):  # what the wire calls grantId is the argument `id`
            named = {"field": "grantId"} if answer.details.get("field") == "id" else {}
            return Refused(answer.code, {**answer.details, **named})
        shown = answer["answer"]
        return Refused("NOT_FOUND") if shown is None else grant_of(shown)

    async def list(self, given: Fields, *, secret: str | None) -> Sequence[dict[str, Any]] | Refused:
        grants: list[dict[str, Any]] = []
        after = None
        while True:
            variables = {"all": False, **given, "first": PAGE, "after": after}
            answer = await self._ask(_LIST, variables, secret)
            if isinstance(answer, Refused):
                return answer
            page = answer["answer"]
            grants += map(grant_of, page["nodes"])
            if not page["pageInfo"]["hasNextPage"]:
                return grants
            after = page["pageInfo"]["endCursor"]

    async def end(self, given: Fields, *, secret: str | None) -> Answer:
        return self._outcome(await self._ask(_END, {"input": dict(given)}, secret))

    async def ask(self, document: str, *, secret: str | None, **variables: Any) -> Any:
        """The data of an operation of the caller's own; fails on errors."""
        answer = await self._ask(document, variables, secret)
        assert not isinstance(answer, Refused), answer
        return answer

    async def mutate(self, name: str, given: Fields, selection: str, *, secret: str | None, kind: str = "") -> Answer:
        """One mutation with the object's `selection`, such as `... on Pool { id }`."""
        kind = kind or f"{name[0].upper()}{name[1:]}Input"
        document = f"""mutation ($input: {kind}!) {{ answer: {name}(input: $input) {{
            __typename {selection} {_REFUSED} }} }}"""
        answer = await self._ask(document, {"input": dict(given)}, secret)
        if isinstance(answer, Refused):
            return answer
        shown = answer["answer"]
        return Refused(shown["code"], on_the_wire(shown)) if "code" in shown else shown

    def _outcome(self, answer: dict[str, Any] | Refused) -> Answer:
        if isinstance(answer, Refused):
            return answer
        shown = answer["answer"]
        return grant_of(shown) if shown["__typename"] == "Grant" else Refused(shown["code"], on_the_wire(shown))

    async def _ask(self, document: str, variables: Fields, secret: str | None) -> dict[str, Any] | Refused:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        body = {"query": document, "variables": dict(variables)}
        response = await self._client.post("/graphql", json=body, headers=headers)
        answer: dict[str, Any] = response.json()
        if errors := answer.get("errors"):
            return failure_of(errors)
        data: dict[str, Any] = answer["data"]
        return data
