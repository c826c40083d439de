"""What the admin plane's requests share: whose thing is meant, its instants, and how long its lists are."""

from __future__ import annotations

import re
from typing import Any, Final

from domain.amounts import INT64_MAX, INT64_MIN, Unit
from domain.instants import read_instant
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.shapes import Shape
from server.rest.cycles.exchange import Exchange, RefusedError
from server.rest.cycles.failures import TENANT_FIELDS, ErrorCode, Failure
from server.rest.cycles.listings import PAGE_DEFAULT, page_of
from server.rest.cycles.query import Query

PAGE_MAX: Final = 100
SEARCH_MAX: Final = 128
_TENANT: Final = "tenant:"
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


def list_of(query: Query) -> dict[str, Any]:
    """The limit and the cursor of a list whose document bounds the limit: what lies outside is refused."""
    return page_of(query, most=PAGE_MAX)


def lenient_list_of(query: Query) -> dict[str, Any]:
    """The same where the document states no bounds: whatever is asked for is served, as far as one page goes."""
    limit = query.integer("limit", least=INT64_MIN, most=INT64_MAX)
    bounded = PAGE_DEFAULT if limit is None else max(1, min(limit, PAGE_MAX))
    return {"limit": bounded, "cursor": query.text("cursor")}


def search_of(query: Query) -> str | None:
    return query.text("search", most=SEARCH_MAX)


def trace_id_of(query: Query) -> str | None:
    """Raises `Shape`."""
    trace_id = query.text("trace_id")
    if trace_id is not None and not _TRACE_ID.fullmatch(trace_id):
        raise _refused("trace_id", "malformed", "trace_id has 32 lower-case hexadecimal digits")
    return trace_id


def named_budget(query: Query) -> dict[str, Any]:
    """The scope and unit that name a budget. Raises `Shape`."""
    scope = query.required("scope")
    query.required("unit")
    unit = query.choice("unit", Unit)
    assert unit is not None, "it is required"
    return {"scope": scope, "unit": unit}


async def tenant_of_budget(exchange: Exchange, query: Query, scope: str) -> str | None:
    """An operator need not name the tenant beside a scope: its first segment does (11.3). It may, by `tenant_id`, which is
    the way to tenants whose ids differ in case only. None for a tenant's own key. Raises `Shape`, `RefusedError`.
    """
    if not exchange.is_admin:
        return None
    if (tenant_id := query.text("tenant_id")) is not None:
        return tenant_id
    first = scope.partition("/")[0]
    level, name = first[: len(_TENANT)].lower(), first[len(_TENANT) :]
    if level != _TENANT or not name:
        raise _refused("scope", "grammar", "a budget's scope begins with tenant:<id>")
    found = await exchange.runtime.budget_reads.tenant_of_scope(exchange.caller, name=name)
    if isinstance(found, Refusal):
        raise RefusedError(found)
    return found


def tenant_in_body(exchange: Exchange, tenant_id: str | None) -> str | None:
    """An operator has to say for whom, a tenant must not (11.3). Raises `Shape`."""
    if exchange.is_admin and not tenant_id:
        raise _refused("tenant_id", "missing", "tenant_id is required when using admin key authentication")
    if not exchange.is_admin and tenant_id is not None:
        raise _refused("tenant_id", "forbidden", "tenant_id is the key's own and must not be in the body")
    return tenant_id


def tenant_in_query(exchange: Exchange, query: Query) -> str | None:
    """Required of an operator, passed over for a tenant. Raises `Shape`."""
    if not exchange.is_admin:
        return None
    tenant_id = query.text("tenant_id")
    if tenant_id is None:
        raise _refused(
            "tenant_id", "missing", "tenant_id query parameter is required when using admin key authentication"
        )
    return tenant_id


def unknown_tenant(outcome: Refusal | Failure) -> Refusal | Failure:
    """Where a new thing names a tenant that there is not, the request is wrong: these operations declare no 404 (11.3)."""
    if isinstance(outcome, NotFound) and outcome.field in TENANT_FIELDS:
        return Failure(status=400, error=ErrorCode.TENANT_NOT_FOUND, message=outcome.message)
    return outcome


def instant_in_body(text: str | None, field: str) -> int | None:
    """Raises `Shape`."""
    if text is None:
        return None
    at = read_instant(text)
    if at is None:
        raise _refused(field, "malformed", f"{field} must be an RFC 3339 date-time with its offset")
    return at


def _refused(field: str, reason: str, message: str) -> Shape:
    return Shape(InvalidInput(field=field, reason=reason, message=message))
