"""From an input object to the keywords of a desk."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import strawberry

from domain.identity import RESERVATION_KEY, split_reservation_key
from domain.shapes import Shape, check_text
from schema.context import operation
from schema.failures import failed

INPUT: Final = strawberry.argument(name="input")
"""The one argument of every mutation. Its name, and the two that follow, mean something else in Python."""
ID: Final = strawberry.argument(name="id")
ALL: Final = strawberry.argument(name="all", description="Every tenant's: for root, acting in the root tenant.")
RESERVATION: Final = strawberry.argument(description="The id of a CapacityReservation: for root only.")


_NAMES: Final[dict[type, tuple[str, ...]]] = {}


def given(wanted: Any) -> dict[str, Any]:
    """The fields of an input object by their Python names, just as they came: desks check them."""
    kind = type(wanted)
    if kind not in _NAMES:
        _NAMES[kind] = tuple(field.name for field in fields(kind))
    return {name: getattr(wanted, name) for name in _NAMES[kind]}


def in_own_tenant(wanted: Any) -> dict[str, Any]:
    """The same; where no tenant is named, the caller acts in its own."""
    return in_tenant(given(wanted))


def in_tenant(keywords: dict[str, Any]) -> dict[str, Any]:
    return {**keywords, "tenant_id": own_tenant(keywords["tenant_id"])}


def own_tenant(tenant_id: str | None) -> str:
    return operation().caller.principal.tenant_id if tenant_id is None else tenant_id


def reservation_of(reservation: str | None, *, field: str = "id") -> dict[str, str]:
    """The id of a CapacityReservation, taken apart. Raises INVALID_INPUT, naming the field that it was given in."""
    if reservation is None:
        return {}
    try:
        check_text(reservation, field, RESERVATION_KEY)
    except Shape as shape:
        raise failed(shape.refusal) from None
    account_id, reservation_id = split_reservation_key(reservation)
    return {"account_id": account_id, "reservation_id": reservation_id}
