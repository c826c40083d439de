"""The outcome of a command: accepted, replayed, or refused. Shared by every context.

A *refusal* is the expected "no": a value that carries what the client needs to act. A fault of ours is raised instead
and never lives here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A typed "no". Sub-classes fix `code`; every further field that is not None is a detail for the client."""

    code: ClassVar[str] = "REFUSED"
    message: str

    def details(self) -> dict[str, Any]:
        """The fields a client can act on, by their Python names; absent ones are left out."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "message"}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidInput(Refusal):
    """The request can never be right as it stands. `field` names the input, `reason` is a stable word (R64)."""

    code: ClassVar[str] = "INVALID_INPUT"
    field: str
    reason: str = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDenied(Refusal):
    """The caller may not ask this, whatever exists (R4): answered before any look-up, so that nobody can probe."""

    code: ClassVar[str] = "ACCESS_DENIED"
    message: str = "the caller may not do this"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound(Refusal):
    """The thing does not exist for this caller: really absent and another tenant's look the same (R60)."""

    code: ClassVar[str] = "NOT_FOUND"
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidState(Refusal):
    """The thing exists but its state forbids this. `grant_ids` names what stands in the way (R51, R52, D29)."""

    code: ClassVar[str] = "INVALID_STATE"
    state: str | None = None
    grant_ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(Refusal):
    """An idempotency key reused for another request (R6; `grant_id` of the first), a taken name, or a stale `version`."""

    code: ClassVar[str] = "CONFLICT"
    reason: str
    grant_id: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Accepted(Generic[Answer]):
    """The command holds. `answer` is the object as it is right after; its changes are already in the context's state."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same request was accepted before under this idempotency key: `subject_id` is what it made or changed.

    The caller gets the thing as it is now, not as it was (R5).
    """

    subject_id: str


Outcome: TypeAlias = Accepted[Answer] | Replayed | Refusal
