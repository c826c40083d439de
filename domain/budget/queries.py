"""What lists of budgets can be asked for: filters, orders, and the cursor that binds a place to both (section 6).

What is None is not asked about. A cursor is good for one list with the same filters and order only; it grants nothing,
since who may see what is asked again with every page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from domain.amounts import INT64_MAX, INT64_MIN, Unit
from domain.budget.records import BudgetStatus, PolicyStatus, ReservationStatus, TenantStatus
from domain.budget.values import Subject
from domain.outcomes import InvalidInput

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 200
"""Items of a page: the protocol's own bound."""
SEARCH_MAX: Final = 128
WORDS_MAX: Final = 25
"""Entries of one filter that is a list."""
CURSOR_MAX: Final = 4_096
"""Characters of a cursor: it holds one sort value and one id, of which a scope path is the longest."""


class Window(NamedTuple):
    """Instants in epoch ms, both included; None is open."""

    since: int | None = None
    until: int | None = None


OPEN: Final = Window()


class ReservationSort(StrEnum):
    RESERVATION_ID = "reservation_id"
    TENANT = "tenant"
    """The subject's; without one it comes first."""
    SCOPE_PATH = "scope_path"
    STATUS = "status"
    RESERVED = "reserved"
    CREATED_AT = "created_at_ms"
    EXPIRES_AT = "expires_at_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationQuery:
    """`subject`: each level that is there must be a segment of the scope path, whatever its case."""

    idempotency_key: str | None = None
    status: ReservationStatus | None = None
    subject: Subject | None = None
    created: Window = OPEN
    expires: Window = OPEN
    finalized: Window = OPEN
    sort_by: ReservationSort = ReservationSort.CREATED_AT
    descending: bool = True


class BudgetSort(StrEnum):
    TENANT = "tenant_id"
    SCOPE = "scope"
    UNIT = "unit"
    STATUS = "status"
    OVERAGE_POLICY = "commit_overage_policy"
    UTILIZATION = "utilization"
    DEBT = "debt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetQuery:
    """Utilization is spent / allocated in millionths; of nothing it is nothing. A `scope_prefix` ends where a segment does,
    unless it ends in `:` or `/`."""

    scope_prefix: str | None = None
    unit: Unit | None = None
    status: BudgetStatus | None = None
    over_limit: bool | None = None
    has_debt: bool | None = None
    utilization_least_millionths: int | None = None
    utilization_most_millionths: int | None = None
    search: str | None = None
    sort_by: BudgetSort = BudgetSort.SCOPE
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceQuery:
    """`segments`: all must be in the scope path; with `exact` they are the whole of it, from the tenant down."""

    segments: tuple[str, ...] = ()
    exact: bool = False


class PolicySort(StrEnum):
    CREATED_AT = "created_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyQuery:
    policy_id: str | None = None
    scope_pattern: str | None = None
    status: PolicyStatus | None = None
    search: str | None = None
    sort_by: PolicySort = PolicySort.CREATED_AT
    descending: bool = True


class TenantSort(StrEnum):
    TENANT_ID = "tenant_id"
    NAME = "name"
    STATUS = "status"
    CREATED_AT = "created_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuery:
    """`nameable`: only those whose ids the published protocol can name."""

    status: TenantStatus | None = None
    parent_tenant_id: str | None = None
    nameable: bool = False
    search: str | None = None
    sort_by: TenantSort = TenantSort.CREATED_AT
    descending: bool = True


class KeyStatus(StrEnum):
    ACTIVE = "ACTIVE"
    REVOKED = "REVOKED"
    EXPIRED = "EXPIRED"


class KeySort(StrEnum):
    KEY_ID = "key_id"
    NAME = "name"
    TENANT_ID = "tenant_id"
    STATUS = "status"
    CREATED_AT = "created_at"
    EXPIRES_AT = "expires_at"
    """Keys without an end come after all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """`search` looks at the id and the name."""

    tenant_id: str | None = None
    status: KeyStatus | None = None
    search: str | None = None
    sort_by: KeySort = KeySort.CREATED_AT
    descending: bool = True


class AuditSort(StrEnum):
    RECORDED_AT = "timestamp"
    OPERATION = "operation"
    RESOURCE_TYPE = "resource_type"
    TENANT_ID = "tenant_id"
    KEY_ID = "key_id"
    STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Lists of words: any of them. `search` looks at the ids of the resource and the entry, the error and the operation.

    What was done has no error code: asking for some finds none of it, and excluding some hides none of it.
    """

    tenant_id: str | None = None
    key_id: str | None = None
    operations: tuple[str, ...] | None = None
    resource_types: tuple[str, ...] | None = None
    resource_id: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    error_codes: tuple[str, ...] | None = None
    error_codes_excluded: tuple[str, ...] = ()
    status_least: int | None = None
    status_most: int | None = None
    recorded: Window = OPEN
    search: str | None = None
    sort_by: AuditSort = AuditSort.RECORDED_AT
    descending: bool = True


class EventSort(StrEnum):
    TIMESTAMP = "timestamp"
    EVENT_TYPE = "event_type"
    CATEGORY = "category"
    SCOPE = "scope"
    """Events without one come first."""
    TENANT_ID = "tenant_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """`scope`: how the scope path begins. `search` looks at the correlation id and the scope."""

    tenant_id: str | None = None
    event_type: str | None = None
    category: str | None = None
    scope: str | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    occurred: Window = OPEN
    search: str | None = None
    sort_by: EventSort = EventSort.TIMESTAMP
    descending: bool = True


class Place(NamedTuple):
    """Where an item stands in its list: its sort value, and its id among equals."""

    value: int | str
    id: str


def query_mark(name: str, whose: str, query: Any) -> str:
    """What a cursor is bound to, in short: the list, whose it is, the filters and the order."""
    content = {"list": name, "of": whose, **_plain(asdict(query))}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def encode_place(mark: str, place: Place) -> str:
    text = json.dumps([mark, place.value, place.id], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_place(mark: str, cursor: str, kind: type) -> Place | InvalidInput:
    """The place after which a list goes on, whose sort values are of this `kind`."""
    refusal = InvalidInput(field="cursor", reason="bad-cursor", message="the cursor is not of this list and order")
    if len(cursor) > CURSOR_MAX:
        return refusal
    try:
        given = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return refusal
    if not isinstance(given, list) or len(given) != 3 or given[0] != mark:
        return refusal
    _, value, id_ = given
    if type(value) is not kind or not isinstance(value, int | str) or not isinstance(id_, str):
        return refusal
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return refusal
    place = Place(value, id_)
    # Base64 and JSON can be written in several ways, a cursor only in one.
    return place if encode_place(mark, place) == cursor else refusal


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}
