"""The expected "no" in GraphQL: the one table from a refusal of the domain to the type that carries it.

Every context adds its own refusals to the table with `shows`. A refusal that is in no table is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final, TypeVar, Union

import strawberry

from domain import outcomes
from domain.outcomes import Accepted, Outcome
from schema.scalars import optional_id

Item = TypeVar("Item")
Resolver = TypeVar("Resolver", bound=Callable[..., Any])
Refused = TypeVar("Refused", bound=outcomes.Refusal)


@strawberry.enum
class RefusalCode(Enum):
    """Why something was refused: stable words to act on."""

    INVALID_INPUT = "INVALID_INPUT"
    ACCESS_DENIED = "ACCESS_DENIED"
    NOT_FOUND = "NOT_FOUND"
    INVALID_STATE = "INVALID_STATE"
    CONFLICT = "CONFLICT"
    CAPACITY_UNAVAILABLE = "CAPACITY_UNAVAILABLE"
    BUDGET_NOT_FOUND = "BUDGET_NOT_FOUND"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    BUDGET_FROZEN = "BUDGET_FROZEN"
    BUDGET_CLOSED = "BUDGET_CLOSED"
    OVERDRAFT_LIMIT_EXCEEDED = "OVERDRAFT_LIMIT_EXCEEDED"
    DEBT_OUTSTANDING = "DEBT_OUTSTANDING"
    TENANT_CLOSED = "TENANT_CLOSED"
    TENANT_SUSPENDED = "TENANT_SUSPENDED"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    UNIT_MISMATCH = "UNIT_MISMATCH"
    RESERVATION_FINALIZED = "RESERVATION_FINALIZED"
    RESERVATION_EXPIRED = "RESERVATION_EXPIRED"
    MAX_EXTENSIONS_EXCEEDED = "MAX_EXTENSIONS_EXCEEDED"
    IDEMPOTENCY_MISMATCH = "IDEMPOTENCY_MISMATCH"
    DUPLICATE_RESOURCE = "DUPLICATE_RESOURCE"
    WEBHOOK_URL_INVALID = "WEBHOOK_URL_INVALID"
    REPLAY_IN_PROGRESS = "REPLAY_IN_PROGRESS"


@strawberry.interface
class Refusal:
    """A request that was understood and refused. Nothing has changed, and its idempotency key is still free.

    A field has one type in all members of a mutation's result, or each member a name of its own for it: so that a client
    can ask for everything at once.
    """

    code: RefusalCode
    message: str = strawberry.field(description="For people. It may change; act on the code and the other fields.")


@strawberry.type
class InvalidInput(Refusal):
    """The request can never be right as it stands."""

    field: str = strawberry.field(description="The input field that is wrong.")
    reason: str = strawberry.field(description="A stable word, such as project-not-grantee.")


@strawberry.type
class AccessDenied(Refusal):
    """The caller may not ask this, whatever exists."""


@strawberry.type
class NotFound(Refusal):
    """The thing does not exist for this caller; another tenant's looks the same."""


@strawberry.type
class InvalidState(Refusal):
    """The thing exists, but its state forbids this."""

    current_state: str | None = strawberry.field(description="The state that forbids it, where one does.")
    grant_ids: list[strawberry.ID] | None = strawberry.field(description="The grants that stand in the way.")


@strawberry.type
class Conflict(Refusal):
    """An idempotency key that was used for another request, a name that is taken, or a version that is not the last."""

    reason: str = strawberry.field(description="A stable word, such as idempotency-key-reused.")
    grant_id: strawberry.ID | None = strawberry.field(description="The grant that the idempotency key made.")
    current_version: int | None = strawberry.field(description="The version that it has by now.")


_TABLE: Final[dict[type[outcomes.Refusal], Callable[[Any], Refusal]]] = {}
_OTHERWISE: Final[dict[tuple[type[outcomes.Refusal], str], str]] = {}


def shows(
    kind: type[Refused], **otherwise: str
) -> Callable[[Callable[[Refused], Refusal]], Callable[[Refused], Refusal]]:
    """Puts a function into the table: it shows refusals of this kind. `otherwise`: details that it shows under another
    name, since members of the same results have a field of that name with another type."""

    def add(show: Callable[[Refused], Refusal]) -> Callable[[Refused], Refusal]:
        assert kind not in _TABLE, f"{kind.__name__} has two entries"
        _TABLE[kind] = show
        _OTHERWISE.update({(kind, name): other for name, other in otherwise.items()})
        return show

    return add


def shown_kinds() -> frozenset[type[outcomes.Refusal]]:
    """What is in the table."""
    return frozenset(_TABLE)


def shown_name(kind: type[outcomes.Refusal], name: str) -> str:
    """The field that shows a detail."""
    return _OTHERWISE.get((kind, name), name)


def show_refusal(refusal: outcomes.Refusal) -> Refusal:
    return _TABLE[type(refusal)](refusal)


def result(name: str, kind: type, *refusals: type[Refusal]) -> Any:
    """The union of a mutation: the object, what every mutation can be refused with, and what this one can besides.

    It can be null, so that a failure of one mutation leaves a client the results of the others in its document.
    """
    members = (kind, InvalidInput, AccessDenied, NotFound, InvalidState, Conflict, *refusals)
    return Annotated[Union[members], strawberry.union(name)] | None  # noqa: UP007 - members are known only here


def answers_with(kind: Any) -> Callable[[Resolver], Resolver]:
    """A field whose type is made by `result`."""
    field: Callable[[Resolver], Resolver] = strawberry.field(graphql_type=kind)
    return field


def answer(outcome: Outcome[Item], show: Callable[[Item], Any]) -> Any:
    """A member of the mutation's union."""
    if isinstance(outcome, outcomes.Refusal):
        return show_refusal(outcome)
    assert isinstance(outcome, Accepted), "a desk answers with the thing, also when it was asked before"
    return show(outcome.answer)


@shows(outcomes.InvalidInput)
def _invalid_input(refusal: outcomes.InvalidInput) -> Refusal:
    return InvalidInput(
        code=RefusalCode.INVALID_INPUT, message=refusal.message, field=refusal.field, reason=refusal.reason
    )


@shows(outcomes.AccessDenied)
def _access_denied(refusal: outcomes.AccessDenied) -> Refusal:
    return AccessDenied(code=RefusalCode.ACCESS_DENIED, message=refusal.message)


@shows(outcomes.NotFound)
def _not_found(refusal: outcomes.NotFound) -> Refusal:
    return NotFound(code=RefusalCode.NOT_FOUND, message=refusal.message)


@shows(outcomes.InvalidState, state="current_state")
def _invalid_state(refusal: outcomes.InvalidState) -> Refusal:
    grant_ids = None if refusal.grant_ids is None else [strawberry.ID(grant_id) for grant_id in refusal.grant_ids]
    return InvalidState(
        code=RefusalCode.INVALID_STATE, message=refusal.message, current_state=refusal.state, grant_ids=grant_ids
    )


@shows(outcomes.Conflict, version="current_version")
def _conflict(refusal: outcomes.Conflict) -> Refusal:
    return Conflict(
        code=RefusalCode.CONFLICT,
        message=refusal.message,
        reason=refusal.reason,
        grant_id=optional_id(refusal.grant_id),
        current_version=refusal.version,
    )
