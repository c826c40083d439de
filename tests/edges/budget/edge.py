"""One way to ask about budgets, and the two edges behind it: a story that is told over `BudgetEdge` is told over both.

What is asked has the names of the wire. What an edge answers is brought to one form, as far as both edges tell it: amounts
as plain numbers, balances by scope, and the wire's word for what it was refused with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from domain.instants import show_instant
from tests.edges.cycles.world import ACME, TOKENS, World

Fields: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Refused:
    code: str
    details: Fields = field(default_factory=dict)


Answer: TypeAlias = "dict[str, Any] | Refused"


class BudgetEdge(Protocol):
    name: str

    async def ask(self, what: str, given: Fields, *, by: str = ACME) -> Answer:
        """`by`: the name of the key."""
        ...

    async def holds(self, chosen: Fields, *, by: str = ACME) -> tuple[list[dict[str, Any]], str | None] | Refused:
        """A page of reservations, and the cursor that it goes on after."""
        ...


# -- the published wire ------------------------------------------------------------------------------------------------

_ADMIN_WORDS: Final = {
    "INSUFFICIENT_PERMISSIONS": "FORBIDDEN",
    "TENANT_NOT_FOUND": "NOT_FOUND",
    "BUDGET_NOT_FOUND": "NOT_FOUND",
}
"""Where the admin plane has a word of its own for what the runtime plane calls otherwise."""


class RestEdge:
    name = "rest"

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, what: str, given: Fields, *, by: str = ACME) -> Answer:
        method, path, body, params, key = getattr(self, f"_{what}")(dict(given))
        headers = {} if key is None else {"x-idempotency-key": key}
        response = await self._world.ask(method, path, body, by=by, headers=headers, **params)
        answer = response.json()
        if response.status_code >= 400:
            return Refused(_ADMIN_WORDS.get(answer["error"], answer["error"]), answer.get("details", {}))
        return _SHOWN_BY_REST[what](answer, given)

    async def holds(self, chosen: Fields, *, by: str = ACME) -> tuple[list[dict[str, Any]], str | None] | Refused:
        response = await self._world.get("/v1/reservations", by=by, **_instants(chosen))
        answer = response.json()
        if response.status_code >= 400:
            return Refused(answer["error"])
        return [_rest_reservation(row, {}) for row in answer["reservations"]], answer.get("next_cursor")

    # Each gives (method, path, body, parameters, key in the header).

    def _reserve(self, given: dict[str, Any]) -> Any:
        return "POST", "/v1/reservations", _work(given, "estimate"), {}, None

    def _decide(self, given: dict[str, Any]) -> Any:
        return "POST", "/v1/decide", _work(given, "estimate"), {}, None

    def _debit(self, given: dict[str, Any]) -> Any:
        return "POST", "/v1/events", _work(given, "actual"), {}, None

    def _commit(self, given: dict[str, Any]) -> Any:
        return "POST", f"/v1/reservations/{given.pop('reservation_id')}/commit", _work(given, "actual"), {}, None

    def _release(self, given: dict[str, Any]) -> Any:
        given.pop("as_admin", None)
        return "POST", f"/v1/reservations/{given.pop('reservation_id')}/release", given, {}, None

    def _extend(self, given: dict[str, Any]) -> Any:
        return "POST", f"/v1/reservations/{given.pop('reservation_id')}/extend", given, {}, None

    def _fund(self, given: dict[str, Any]) -> Any:
        params = _place(given)
        body = _work({**given, "unit": params["unit"]}, "amount")
        return "POST", "/v1/admin/budgets/fund", body, params, None

    def _create(self, given: dict[str, Any]) -> Any:
        unit = given["unit"]
        body = {**_limited(_work(given, "allocated"), unit), "unit": unit}
        return "POST", "/v1/admin/budgets", body, {}, body.pop("idempotency_key", None)

    def _update(self, given: dict[str, Any]) -> Any:
        params = _place(given)
        body = _limited(given, params["unit"])
        return "PATCH", "/v1/admin/budgets", body, params, body.pop("idempotency_key", None)

    def _freeze(self, given: dict[str, Any]) -> Any:
        return "POST", "/v1/admin/budgets/freeze", given, _place(given), given.pop("idempotency_key", None)

    def _unfreeze(self, given: dict[str, Any]) -> Any:
        return "POST", "/v1/admin/budgets/unfreeze", given, _place(given), given.pop("idempotency_key", None)

    def _tenant(self, given: dict[str, Any]) -> Any:
        path = f"/v1/admin/tenants/{given['tenant_id']}"
        return "PATCH", path, {"status": given["status"]}, {}, given.get("idempotency_key")

    def _find(self, given: dict[str, Any]) -> Any:
        return "GET", f"/v1/reservations/{given['reservation_id']}", None, {}, None

    def _budget(self, given: dict[str, Any]) -> Any:
        return "GET", "/v1/admin/budgets/lookup", None, _place(given), None


def _work(given: dict[str, Any], amount: str) -> dict[str, Any]:
    """The body, with the amount under its name."""
    number, unit = given.pop("amount"), given.get("unit", TOKENS)
    given[amount] = {"unit": unit, "amount": number}
    if given.get("spent") is not None:
        given["spent"] = {"unit": unit, "amount": given["spent"]}
    return {name: value for name, value in given.items() if name != "unit"}


def _limited(body: dict[str, Any], unit: str) -> dict[str, Any]:
    if "overdraft_limit" in body:
        body["overdraft_limit"] = {"unit": unit, "amount": body["overdraft_limit"]}
    return body


def _place(given: dict[str, Any]) -> dict[str, Any]:
    """What names the budget, taken out of the rest."""
    return {name: given.pop(name, TOKENS) for name in ("scope", "unit")}


def _instants(chosen: Fields) -> dict[str, Any]:
    """Names as in `holds`; `created_from` is the wire's `from`."""
    named = {"created_from": "from_", "created_to": "to"}
    return {
        named.get(name, name): show_instant(value) if name.endswith(("_from", "_to")) else value
        for name, value in chosen.items()
    }


def _number(amount: Fields | None) -> int | None:
    return None if amount is None else amount["amount"]


def _rest_balances(answer: Fields) -> dict[str, dict[str, Any]]:
    return {
        row["scope_path"]: {
            "unit": row["remaining"]["unit"],
            **{name: _number(row.get(name)) or 0 for name in _AMOUNTS},
            "is_over_limit": row.get("is_over_limit", False),
        }
        for row in answer.get("balances", [])
    }


_AMOUNTS: Final = ("allocated", "remaining", "reserved", "spent", "debt", "overdraft_limit")


def _rest_hold(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {
        **{name: answer.get(name) for name in ("decision", "reservation_id", "scope_path", "reason_code", "caps")},
        "affected_scopes": answer["affected_scopes"],
        "reserved": _number(answer.get("reserved")),
        "expires_at": answer.get("expires_at_ms"),
        "remaining_ttl_ms": answer.get("remaining_ttl_ms"),
        "balances": _rest_balances(answer),
    }


def _rest_verdict(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {name: answer.get(name) for name in ("decision", "affected_scopes", "reason_code", "caps")}


def _rest_settled(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {
        "charged": _number(answer.get("charged")),
        "released": _number(answer.get("released")),
        "balances": _rest_balances(answer),
    }


def _rest_extension(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {
        "expires_at": answer["expires_at_ms"],
        "remaining_ttl_ms": answer["remaining_ttl_ms"],
        "balances": _rest_balances(answer),
    }


def _rest_debit(answer: Fields, given: Fields) -> dict[str, Any]:
    """What was charged is told only where it was cut."""
    charged = _number(answer.get("charged"))
    return {
        "id": answer["event_id"],
        "charged": given["amount"] if charged is None else charged,
        "balances": _rest_balances(answer),
    }


def _rest_funding(answer: Fields, _given: Fields) -> dict[str, Any]:
    names = ("allocated", "remaining", "debt", "spent")
    return {
        "before": {name: _number(answer[f"previous_{name}"]) for name in names},
        "after": {name: _number(answer[f"new_{name}"]) for name in names},
    }


def _rest_budget(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {
        "id": answer["ledger_id"],
        **{name: answer[name] for name in ("scope", "unit", "status", "is_over_limit")},
        **{name: answer[name]["amount"] for name in _AMOUNTS},
    }


def _rest_reservation(answer: Fields, _given: Fields) -> dict[str, Any]:
    return {
        "reservation_id": answer["reservation_id"],
        "status": answer["status"],
        "reserved": answer["reserved"]["amount"],
        "charged": _number(answer.get("committed")),
        "scope_path": answer["scope_path"],
        "expires_at": answer["expires_at_ms"],
        "subject": answer["subject"],
    }


_SHOWN_BY_REST: Final = {
    "reserve": _rest_hold,
    "decide": _rest_verdict,
    "commit": _rest_settled,
    "release": _rest_settled,
    "extend": _rest_extension,
    "debit": _rest_debit,
    "fund": _rest_funding,
    **dict.fromkeys(("create", "update", "freeze", "unfreeze", "budget"), _rest_budget),
    "tenant": lambda answer, _given: {"status": answer["status"]},
    "find": _rest_reservation,
}
