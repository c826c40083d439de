"""What a client is told at the top level of an answer: everything that is no part of a field's type.

A refusal inside a mutation's result is no failure and is not here. Every failure carries `extensions.code`; one of ours
is masked as INTERNAL, and its cause is in the log under the request id.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from graphql import GraphQLError
from strawberry.extensions import MaskErrors
from strawberry.schema.exceptions import InvalidOperationTypeError
from strawberry.types import ExecutionContext, ExecutionResult
from strawberry.types.graphql import OperationType
from strawberry.utils.str_converters import to_camel_case

from domain.outcomes import InvalidInput, Refusal
from schema.sharing import SharingSchema
from storage.database import Unavailable
from workers.actor import Overloaded, Stopped
from workers.events import SubscriptionClosed

log = logging.getLogger("earmark.graphql")

INTERNAL: Final = "INTERNAL"
INVALID_DOCUMENT: Final = "INVALID_DOCUMENT"
INVALID_INPUT: Final = "INVALID_INPUT"
UNAUTHENTICATED: Final = "UNAUTHENTICATED"
TOO_MANY_TOKENS: Final = "TOO_MANY_TOKENS"
TOO_DEEP: Final = "TOO_DEEP"


class RequestError(GraphQLError):
    """An answer that is no value of the field's type. What is in `details` goes beside the code."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message, extensions={"code": code, **details})


def renamed(refusal: Refusal, named: Mapping[str, str]) -> Refusal:
    """A refusal of an input that this schema calls otherwise: by its own name, in the message too."""
    if not isinstance(refusal, InvalidInput) or (name := named.get(refusal.field, refusal.field)) == refusal.field:
        return refusal
    message = refusal.message
    if message.startswith(refusal.field):
        message = name + message.removeprefix(refusal.field)
    return replace(refusal, field=name, message=message)


def failed(refusal: Refusal, **named: str) -> RequestError:
    """A refusal where the field's type has no place for one: a read. `named`: what this schema calls an input of the
    read."""
    refusal = renamed(refusal, named)
    details = {to_camel_case(name): value for name, value in refusal.details().items()}
    return RequestError(refusal.code, refusal.message, **details)


def unauthenticated() -> RequestError:
    return RequestError(UNAUTHENTICATED, "a valid API key is needed: Authorization: Bearer KEY, or X-API-Key: KEY")


def described(error: GraphQLError, *, request_id: str | None) -> GraphQLError:
    """The error as the client gets it, whatever was raised."""
    extensions = error.extensions or {}
    if code := extensions.get("code"):
        place = _place_of(error.message) if code == INVALID_INPUT and "field" not in extensions else {}
        return _coded(error, code, error.message, **place) if place else error
    match error.original_error:
        case SubscriptionClosed() as closed:
            return _coded(error, closed.code, str(closed), cursor=closed.cursor)
        case Overloaded() as overloaded:
            return _coded(error, "OVERLOADED", str(overloaded), retryAfter=overloaded.retry_after_s)
        case Unavailable() as unavailable:
            return _coded(error, "UNAVAILABLE", str(unavailable))
        case InvalidOperationTypeError() as wrong:  # in a stream of events; elsewhere it is an answer of its own
            kind = wrong.operation_type.value
            return _coded(error, "BAD_REQUEST", f"a {kind} is not allowed with this method and media type")
        case Stopped():
            return _coded(error, "UNAVAILABLE", "the server is closing; ask again with the same idempotency key")
    if code := _code_of_request_error(error):
        return _coded(error, code, error.message, **_place_of(error.message))
    return _coded(error, INTERNAL, "Internal error", requestId=request_id)


def syntax_failure(error: GraphQLError) -> GraphQLError:
    """What the parser could not read, or would not."""
    reasons = {"contains more than": TOO_MANY_TOKENS, "nested too deeply": TOO_DEEP}
    code = next((code for words, code in reasons.items() if words in error.message), INVALID_DOCUMENT)
    return _coded(error, code, error.message)


def is_ours(error: GraphQLError) -> bool:
    """Whether the failure is a fault of this server."""
    code = (described(error, request_id=None).extensions or {}).get("code")
    return code == INTERNAL


def _code_of_request_error(error: GraphQLError) -> str | None:
    """graphql-core's own complaints about a document and its variables, which bear no code."""
    if not isinstance(error.original_error, GraphQLError | None):
        return None
    is_of_argument = error.message.startswith("Argument ")  # a null variable where the argument takes none
    return INVALID_INPUT if error.path is None or is_of_argument else None


_VARIABLE: Final = re.compile(r"Variable '\$(\w+)'(?: has invalid value(?: at \.?([^:]+))?)?")
_FIELD: Final = re.compile(r" to include (required|unknown) field '(\w+)'")


def _place_of(message: str) -> dict[str, str]:
    """The variable, and the place in it, that the library complains of in words."""
    if (found := _VARIABLE.match(message)) is None:
        return {}
    path = [part for part in found.groups() if part]
    reason = "missing" if message.endswith("to be provided.") else "wrong-type"
    if inner := _FIELD.search(message):
        path.append(inner[2])
        reason = "missing" if inner[1] == "required" else "unknown-field"
    return {"field": own_path(".".join(path)), "reason": reason}


def own_path(path: str) -> str:
    """The place of an input, from a path that begins with its variable. Mutations have the one argument `input`, and
    what is wrong in it is named by its fields, by desks too."""
    return path.replace(".[", "[").removeprefix("input.")


def _coded(error: GraphQLError, code: str, message: str, **details: Any) -> GraphQLError:
    known = {name: value for name, value in details.items() if value is not None}
    return GraphQLError(
        message,
        nodes=error.nodes,
        source=error.source,
        positions=error.positions,
        path=error.path,
        extensions={"code": code, **known},
    )


def request_id_of(execution: ExecutionContext | None) -> str | None:
    """The id of the request that is being served, if its context knows it."""
    caller = getattr(execution.context, "caller", None) if execution is not None else None
    return getattr(caller, "request_id", None)


class DescribeFailures(MaskErrors):
    """Gives every error its code and hides what is ours, in single answers and in each frame of a stream."""

    def __init__(self) -> None:
        super().__init__(should_mask_error=lambda _: True)

    def on_validate(self) -> Iterator[None]:
        yield
        for error in self.execution_context.pre_execution_errors or ():
            error.extensions = {"code": INVALID_DOCUMENT, **(error.extensions or {})}

    def anonymise_error(self, error: GraphQLError) -> GraphQLError:
        return described(error, request_id=request_id_of(self.execution_context))


ANSWERED_ONCE: Final = frozenset({OperationType.QUERY, OperationType.MUTATION})


class StrictSchema(SharingSchema):
    """Logs our own faults with their cause: a client's mistake is none, and an expected "no" is none either. And refuses
    a subscription where only one answer can be given."""

    async def execute(  # noqa: PLR0917 - strawberry's own signature
        self,
        query: str | None,
        variable_values: dict[str, Any] | None = None,
        context_value: Any | None = None,
        root_value: Any | None = None,
        operation_name: str | None = None,
        allowed_operation_types: Iterable[OperationType] | None = None,
        operation_extensions: dict[str, Any] | None = None,
    ) -> ExecutionResult:
        allowed = ANSWERED_ONCE.intersection(allowed_operation_types or ANSWERED_ONCE)
        return await super().execute(
            query, variable_values, context_value, root_value, operation_name, allowed, operation_extensions
        )

    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        for error in errors:
            if is_ours(error):
                cause = error.original_error or error
                place = ".".join(str(step) for step in error.path or ())
                extra = {"request_id": request_id_of(execution_context), "field": place}
                log.error("a field failed", exc_info=cause, extra=extra)
