"""Whatever is sent, the answer is one that the documents know, and never a fault of ours. Seeded: a failure comes again."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.edges.cycles.world import ACME, ADMIN, BOT, TENANT, TOKENS, B, World, tokens

ROUNDS = 150
"""Requests of one test: a few seconds' worth."""

NASTY: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    10**40,
    0.5,
    1e300,
    "",
    " ",
    "x",
    "x" * 300,
    "x" * 5_000,
    "\u00e4\U0001f600",
    "a\u0000b",
    "tenant:acme/agent:*",
    "TOKENS",
    "2027-01-15T08:00:00Z",
    "9999-12-31T23:59:59.999+23:59",
    "0001-01-01T00:00:00-23:59",
    "'; drop table budget; --",
    [],
    [1],
    ["x"] * 70,
    {},
    {"unit": TOKENS, "amount": 2**63 - 1},
    {"a": {"b": [{"c": None}]}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, the whole of it excepted."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from places(each, (*path, name))


def spoiled(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The document with something else at one or two of its places, or with one more field."""
    changed = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 2))):
        *way, last = chance.choice([*places(changed), ("surprise",)])
        within: Any = changed
        for name in way:
            within = within[name]
        within[last] = copy.deepcopy(chance.choice(NASTY))
    return changed


def bodies(reservation_id: str) -> dict[str, tuple[str, str, dict[str, Any], dict[str, str]]]:
    """Operation to (method, path, a whole body, parameters)."""
    subject = {"tenant": ACME, "workspace": "w", "agent": "bot", "dimensions": {"run": "1"}}
    action = {"kind": "k", "name": "n", "tags": ["t"]}
    metrics = {"tokens_input": 1, "tokens_output": 2, "latency_ms": 3, "model_version": "v", "custom": {"x": 1}}
    keyed = {"idempotency_key": "k", "metadata": {"a": [1, {"b": 2}]}}
    hold = {**keyed, "subject": subject, "action": action, "estimate": tokens(1)}
    place = {"scope": TENANT, "unit": TOKENS, "tenant_id": ACME}
    one = f"/v1/reservations/{reservation_id}"
    caps = {"max_tokens": 1, "tool_allowlist": ["a"], "tool_denylist": ["b"], "cooldown_ms": 1}
    rules = {
        "description": "d",
        "priority": 1,
        "caps": caps,
        "commit_overage_policy": "REJECT",
        "reservation_ttl_override": {"default_ttl_ms": 1_000, "max_extensions": 1},
        "rate_limits": {"max_commits_per_minute": 100_000},
        "effective_from": "2027-01-01T00:00:00Z",
        "effective_until": "2028-01-01T00:00:00Z",
    }
    limits = {"max_reservation_ttl_ms": 5_000, "max_reservation_extensions": 3}
    return {
        "decide": ("POST", "/v1/decide", hold, {}),
        "reserve": (
            "POST",
            "/v1/reservations",
            {**hold, "ttl_ms": 1_000, "grace_period_ms": 0, "overage_policy": "REJECT", "dry_run": False},
            {},
        ),
        "commit": ("POST", f"{one}/commit", {**keyed, "actual": tokens(1), "metrics": metrics}, {}),
        "release": ("POST", f"{one}/release", {"idempotency_key": "k", "reason": "r"}, {}),
        "extend": ("POST", f"{one}/extend", {**keyed, "extend_by_ms": 1}, {}),
        "event": (
            "POST",
            "/v1/events",
            {
                **keyed,
                "subject": subject,
                "action": action,
                "actual": tokens(1),
                "metrics": metrics,
                "client_time_ms": 1,
            },
            {},
        ),
        "create tenant": (
            "POST",
            "/v1/admin/tenants",
            {"tenant_id": "new-one", "name": "n", "metadata": {"a": "b"}},
            {},
        ),
        "update tenant": ("PATCH", f"/v1/admin/tenants/{ACME}", {"name": "n", "metadata": {"a": "b"}, **limits}, {}),
        "create key": (
            "POST",
            "/v1/admin/api-keys",
            {
                "tenant_id": ACME,
                "name": "n",
                "description": "d",
                "permissions": ["balances:read"],
                "scope_filter": ["agent:*"],
                "expires_at": "2028-01-01T00:00:00Z",
                "metadata": {"a": 1},
            },
            {},
        ),
        "create budget": (
            "POST",
            "/v1/admin/budgets",
            {
                "tenant_id": ACME,
                "scope": BOT,
                "unit": TOKENS,
                "allocated": tokens(5),
                "overdraft_limit": tokens(5),
                "rollover_policy": "NONE",
                "period_start": "2027-01-01T00:00:00Z",
                "period_end": "2028-01-01T00:00:00Z",
                "metadata": {"a": 1},
            },
            {},
        ),
        "update budget": ("PATCH", "/v1/admin/budgets", {"overdraft_limit": tokens(5), "metadata": {"a": 1}}, place),
        "freeze": ("POST", "/v1/admin/budgets/freeze", {"reason": "r", "metadata": {"a": 1}}, place),
        "fund": (
            "POST",
            "/v1/admin/budgets/fund",
            {"operation": "RESET_SPENT", "amount": tokens(5), "spent": tokens(1), "reason": "r", "metadata": {"a": 1}},
            place,
        ),
        "create policy": (
            "POST",
            "/v1/admin/policies",
            {"tenant_id": ACME, "name": "n", "scope_pattern": "agent:nobody", **rules},
            {},
        ),
        "validate": ("POST", "/v1/auth/validate", {"key_secret": "x" * 40}, {}),
    }


@pytest.mark.parametrize("operation", bodies(""))
async def test_a_spoiled_body_is_an_answer_of_the_protocol(world: World, operation: str) -> None:
    await world.budget(TENANT, 2**62)
    chance = random.Random(operation)
    reservation_id = await world.held(1, ttl_ms=60_000)
    method, path, body, params = bodies(reservation_id)[operation]
    by = ADMIN if "admin" in path or "auth" in path else ACME
    for _ in range(ROUNDS):
        sent = spoiled(body, chance)
        answer = await world.ask(method, path, sent, by=by, **params)
        assert answer.status_code < 500, (sent, answer.text)


LISTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "reservations": (
        "/v1/reservations",
        ACME,
        ("idempotency_key", "status", "agent", "from", "to", "expires_from", "finalized_to", "sort_by", "sort_dir"),
    ),
    "balances": ("/v1/balances", ACME, ("tenant", "agent", "include_children", "scope_prefix", "unit", "tenant_id")),
    "tenants": ("/v1/admin/tenants", ADMIN, ("status", "parent_tenant_id", "search", "sort_by", "sort_dir")),
    "keys": ("/v1/admin/api-keys", ADMIN, ("tenant_id", "status", "search", "sort_by", "sort_dir")),
    "budgets": (
        "/v1/admin/budgets",
        ADMIN,
        (
            "tenant_id",
            "scope_prefix",
            "unit",
            "status",
            "over_limit",
            "has_debt",
            "utilization_min",
            "search",
            "sort_by",
        ),
    ),
    "policies": ("/v1/admin/policies", ADMIN, ("tenant_id", "scope_pattern", "status")),
    "logs": (
        "/v1/admin/audit/logs",
        ADMIN,
        ("tenant_id", "key_id", "operation", "status", "resource_type", "resource_id", "status_min", "from", "search"),
    ),
    "lookup": ("/v1/admin/budgets/lookup", ADMIN, ("scope", "unit")),
}


@pytest.mark.parametrize("name", LISTS)
async def test_a_spoiled_query_is_an_answer_of_the_protocol(world: World, name: str) -> None:
    await world.budget(TENANT, 10)
    path, by, parameters = LISTS[name]
    chance = random.Random(name)
    some: tuple[Callable[[], str], ...] = (
        lambda: str(chance.choice(NASTY)),
        lambda: chance.choice((ACME, TENANT, "ACTIVE", "asc", "true", "0.5", "200", TOKENS, "created_at", str(B))),
    )
    for _ in range(ROUNDS):
        chosen = chance.sample(parameters, chance.randrange(1, 3)) + chance.choice([[], ["limit"], ["cursor"]])
        params = {name: chance.choice(some)() for name in chosen}
        answer = await world.ask("GET", path, by=by, **params)
        assert answer.status_code < 500, (params, answer.text)
