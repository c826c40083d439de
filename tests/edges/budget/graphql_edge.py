"""The other edge: the same questions in GraphQL, and its answers in the same form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.edges.budget.edge import Answer, Fields, Refused, RestEdge
from tests.edges.cycles.world import ACME, ADMIN, TOKENS, World

_WORDS: Final = {
    "INVALID_INPUT": "INVALID_REQUEST",
    "INVALID_STATE": "INVALID_REQUEST",
    "ACCESS_DENIED": "FORBIDDEN",
    "TENANT_SUSPENDED": "FORBIDDEN",
    "BUDGET_NOT_FOUND": "NOT_FOUND",
    "UNAUTHENTICATED": "UNAUTHORIZED",
}
"""Codes that the published wire calls otherwise."""

_BALANCE: Final = "scope unit allocated remaining reserved spent debt overdraftLimit isOverLimit"
_CAPS: Final = "caps { maxTokens maxStepsRemaining toolAllowlist toolDenylist cooldownMs }"
_BUDGET: Final = f"id status {_BALANCE}"
_RESERVATION: Final = "id status reserved charged scope expiresAt subject"
_ASKED: Final = {
    "reserve": (
        "reserveBudget",
        f"""... on BudgetHold {{ decision reservationId scope affectedScopes reserved expiresAt remainingTtlMs reasonCode
            {_CAPS} balances {{ {_BALANCE} }} }}""",
    ),
    "decide": ("decide", f"... on BudgetVerdict {{ decision affectedScopes reasonCode {_CAPS} }}"),
    "commit": ("commitBudget", f"... on BudgetCommit {{ charged released balances {{ {_BALANCE} }} }}"),
    "release": ("releaseBudget", f"... on BudgetRelease {{ released balances {{ {_BALANCE} }} }}"),
    "extend": ("extendBudget", f"... on BudgetExtension {{ expiresAt remainingTtlMs balances {{ {_BALANCE} }} }}"),
    "debit": ("debitBudget", f"... on BudgetDebit {{ id charged balances {{ {_BALANCE} }} }}"),
    "fund": ("fundBudget", f"... on BudgetFunding {{ before {{ {_BALANCE} }} after {{ {_BALANCE} }} }}"),
    "create": ("createBudget", f"... on Budget {{ {_BUDGET} }}"),
    "update": ("updateBudget", f"... on Budget {{ {_BUDGET} }}"),
    "freeze": ("freezeBudget", f"... on Budget {{ {_BUDGET} }}"),
    "unfreeze": ("unfreezeBudget", f"... on Budget {{ {_BUDGET} }}"),
}
"""What is asked: the field, and what is wanted of its answer."""
_STATUS: Final = {"SUSPENDED": "suspendTenant", "ACTIVE": "reactivateTenant", "CLOSED": "closeTenant"}
_REFUSED: Final = "... on Refusal { code } ... on InvalidInput { field }"
_MISMATCH: Final = "... on UnitMismatch { budgetScope requestedUnit expectedUnits }"
_AMOUNTS: Final = {"reserve": "estimate", "decide": "estimate", "fund": "amount", "create": "allocated"}
_HOLDS: Final = f"""query ($status: BudgetReservationStatus, $subject: SubjectInput, $idempotencyKey: String, $tenantId: ID,
    $createdFrom: Millis, $createdTo: Millis, $expiresFrom: Millis, $expiresTo: Millis, $finalizedFrom: Millis,
    $finalizedTo: Millis, $sortBy: BudgetReservationSort! = CREATED_AT, $descending: Boolean! = true, $first: Int,
    $after: String) {{
  budgetReservations(status: $status, subject: $subject, idempotencyKey: $idempotencyKey, tenantId: $tenantId,
      createdFrom: $createdFrom, createdTo: $createdTo, expiresFrom: $expiresFrom, expiresTo: $expiresTo,
      finalizedFrom: $finalizedFrom, finalizedTo: $finalizedTo, sortBy: $sortBy, descending: $descending,
      first: $first, after: $after) {{
    nodes {{ {_RESERVATION} }} pageInfo {{ hasNextPage endCursor }}
  }}
}}"""
_SORTS: Final = {"created_at_ms": "CREATED_AT", "expires_at_ms": "EXPIRES_AT"}
_LEVELS: Final = ("workspace", "app", "workflow", "agent", "toolset")


class GraphQLEdge:
    name = "graphql"

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, what: str, given: Fields, *, by: str = ACME) -> Answer:
        if what == "find":
            return await self._find(given, by=by)
        if what == "budget":
            return await self._budget(given, by=by)
        if what == "tenant":
            field, selection = _STATUS[given["status"]], "... on TenantStanding { status }"
            wanted = {name: value for name, value in given.items() if name != "status"}
        else:
            (field, selection), wanted = _ASKED[what], _wanted(what, dict(given))
            selection += _MISMATCH
        if by == ADMIN and "scope" in wanted:
            wanted["tenant_id"] = _tenant_of(wanted["scope"])
        kind = "query" if what == "decide" else "mutation"
        document = f"""{kind} ($input: {field[0].upper()}{field[1:]}Input!) {{
            answer: {field}(input: $input) {{ {selection} {_REFUSED} }} }}"""
        answer = await self._send(document, {"input": _camel(wanted)}, by)
        if isinstance(answer, Refused):
            return answer
        shown = answer["answer"]
        if "code" in shown:
            return Refused(_WORDS.get(shown["code"], shown["code"]), _details(shown))
        return _SHOWN.get(what, _same)(shown)

    async def holds(self, chosen: Fields, *, by: str = ACME) -> tuple[list[dict[str, Any]], str | None] | Refused:
        wanted = dict(chosen)
        subject = {level: wanted.pop(level) for level in _LEVELS if level in wanted}
        if "sort_by" in wanted:
            wanted["sort_by"] = _SORTS.get(wanted["sort_by"], wanted["sort_by"].upper())
        named = {"limit": "first", "cursor": "after", "tenant": "tenant_id"}
        variables = _camel({named.get(name, name): value for name, value in wanted.items() if name != "sort_dir"})
        variables["descending"] = wanted.get("sort_dir", "desc") == "desc"
        if subject:
            variables["subject"] = subject
        answer = await self._send(_HOLDS, variables, by)
        if isinstance(answer, Refused):
            return answer
        page = answer["budgetReservations"]
        cursor = page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None
        return [_reservation(row) for row in page["nodes"]], cursor

    async def _find(self, given: Fields, *, by: str) -> Answer:
        document = f"""query ($id: ID!, $asAdmin: Boolean! = false) {{
            budgetReservation(id: $id, asAdmin: $asAdmin) {{ {_RESERVATION} }} }}"""
        variables = {"id": given["reservation_id"], "asAdmin": by == ADMIN}
        return await self._one(document, variables, "budgetReservation", _reservation, by)

    async def _budget(self, given: Fields, *, by: str) -> Answer:
        document = f"""query ($scope: String!, $unit: BudgetUnit!, $tenantId: ID) {{
            budget(scope: $scope, unit: $unit, tenantId: $tenantId) {{ {_BUDGET} }} }}"""
        unit = given.get("unit", TOKENS)
        tenant = _tenant_of(given["scope"]) if by == ADMIN else None
        variables = {"scope": given["scope"], "unit": unit, "tenantId": tenant}
        return await self._one(document, variables, "budget", _budget, by)

    async def _one(self, document: str, variables: Fields, field: str, show: Any, by: str) -> Answer:
        answer = await self._send(document, variables, by)
        if isinstance(answer, Refused):
            return answer
        return Refused("NOT_FOUND") if answer[field] is None else show(answer[field])

    async def _send(self, document: str, variables: Fields, by: str) -> Answer:
        headers = {"Authorization": f"Bearer {self._world.secrets.get(by, by)}"}
        body = {"query": document, "variables": dict(variables)}
        response = await self._world.client.post("/graphql", json=body, headers=headers)
        answer: dict[str, Any] = response.json()
        if errors := answer.get("errors"):
            code = errors[0]["extensions"]["code"]
            return Refused(_WORDS.get(code, code), errors[0]["extensions"])
        data: dict[str, Any] = answer["data"]
        return data


def _tenant_of(scope: str) -> str:
    return scope.partition("/")[0].removeprefix("tenant:")


def _wanted(what: str, given: dict[str, Any]) -> dict[str, Any]:
    unit = given.pop("unit", TOKENS)
    if what in ("fund", "create", "update", "freeze", "unfreeze"):
        given["unit"] = unit
    for name in ("spent", "overdraft_limit"):
        if given.get(name) is not None:
            given[name] = {"unit": unit, "amount": given[name]}
    if "amount" in given:
        given[_AMOUNTS.get(what, "actual")] = {"unit": unit, "amount": given.pop("amount")}
    if (dimensions := given.get("subject", {}).get("dimensions")) is not None:
        named = [{"name": name, "value": value} for name, value in dimensions.items()]
        given["subject"] = {**given["subject"], "dimensions": named}
    return given


def _camel(given: Fields) -> dict[str, Any]:
    """Names of the first level alone: what lies below is called alike, or the client's own."""
    return {_camel_word(name): value for name, value in given.items()}


def _camel_word(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _details(shown: Mapping[str, Any]) -> dict[str, Any]:
    named = {"budgetScope": "scope", "requestedUnit": "requested_unit", "expectedUnits": "expected_units"}
    return {named.get(name, name): value for name, value in shown.items() if name != "code"}


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _balance(row: Fields) -> dict[str, Any]:
    names = ("allocated", "remaining", "reserved", "spent", "debt")
    return {
        "unit": row["unit"],
        **{name: int(row[name]) for name in names},
        "overdraft_limit": int(row["overdraftLimit"]),
        "is_over_limit": row["isOverLimit"],
    }


def _balances(shown: Fields) -> dict[str, dict[str, Any]]:
    return {row["scope"]: _balance(row) for row in shown["balances"]}


def _caps(caps: Fields | None) -> dict[str, Any] | None:
    """As the wire shows them: what is not limited is left out."""
    if caps is None:
        return None
    given = {
        "max_tokens": _int(caps["maxTokens"]),
        "max_steps_remaining": _int(caps["maxStepsRemaining"]),
        "tool_allowlist": caps["toolAllowlist"] or None,
        "tool_denylist": caps["toolDenylist"] or None,
        "cooldown_ms": _int(caps["cooldownMs"]),
    }
    return {name: value for name, value in given.items() if value is not None}


def _hold(shown: Fields) -> dict[str, Any]:
    return {
        "decision": shown["decision"],
        "reservation_id": shown["reservationId"],
        "scope_path": shown["scope"],
        "reason_code": shown["reasonCode"],
        "caps": _caps(shown["caps"]),
        "affected_scopes": shown["affectedScopes"],
        "reserved": _int(shown["reserved"]),
        "expires_at": shown["expiresAt"],
        "remaining_ttl_ms": _int(shown["remainingTtlMs"]),
        "balances": _balances(shown),
    }


def _verdict(shown: Fields) -> dict[str, Any]:
    return {
        "decision": shown["decision"],
        "affected_scopes": shown["affectedScopes"],
        "reason_code": shown["reasonCode"],
        "caps": _caps(shown["caps"]),
    }


def _settled(shown: Fields) -> dict[str, Any]:
    return {
        "charged": _int(shown.get("charged")),
        "released": _int(shown["released"]),
        "balances": _balances(shown),
    }


def _extension(shown: Fields) -> dict[str, Any]:
    return {
        "expires_at": shown["expiresAt"],
        "remaining_ttl_ms": int(shown["remainingTtlMs"]),
        "balances": _balances(shown),
    }


def _debit(shown: Fields) -> dict[str, Any]:
    return {"id": shown["id"], "charged": int(shown["charged"]), "balances": _balances(shown)}


def _funding(shown: Fields) -> dict[str, Any]:
    names = ("allocated", "remaining", "debt", "spent")
    return {side: {name: int(shown[side][name]) for name in names} for side in ("before", "after")}


def _budget(shown: Fields) -> dict[str, Any]:
    return {"id": shown["id"], "scope": shown["scope"], "status": shown["status"], **_balance(shown)}


def _reservation(row: Fields) -> dict[str, Any]:
    return {
        "reservation_id": row["id"],
        "status": row["status"],
        "reserved": int(row["reserved"]),
        "charged": _int(row["charged"]),
        "scope_path": row["scope"],
        "expires_at": row["expiresAt"],
        "subject": row["subject"],
    }


def _same(shown: Fields) -> dict[str, Any]:
    return dict(shown)


_SHOWN: Final = {
    "reserve": _hold,
    "decide": _verdict,
    "commit": _settled,
    "release": _settled,
    "extend": _extension,
    "debit": _debit,
    "fund": _funding,
    **dict.fromkeys(("create", "update", "freeze", "unfreeze"), _budget),
}

EDGES: Final = {kind.name: kind for kind in (RestEdge, GraphQLEdge)}
"""Both, by name."""
