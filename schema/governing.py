"""Mutations that govern: what is refused of them is on record in the audit log, as it is over the Cycles wire (11.7).

What is done is written down with the change itself, whichever edge it came over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from strawberry.utils.str_converters import to_camel_case

from schema.context import operation
from schema.refusals import Refusal, Resolver, answers_with
from workers.budget.audit_log import FailedRequest, words_of

_NAMES: Final = {"api_key": "key_id", "budget": "scope"}
"""The field of the input that names what it is about, where that is not the thing's own name with `_id`."""


def governs(kind: Any, about: str, *, name: str | None = None) -> Callable[[Resolver], Resolver]:
    """A field whose type is made by `result`. `about`: the type of the resource, in the log's own words.

    `name`: what the audit log calls the operation, where the wire's word is not the mutation's.
    """

    def field(resolver: Resolver) -> Resolver:
        operation_name = name or to_camel_case(resolver.__name__)

        @wraps(resolver)
        async def recorded(self: Any, wanted: Any) -> Any:
            shown = await resolver(self, wanted)
            if isinstance(shown, Refusal):
                named = getattr(wanted, _NAMES.get(about, f"{about}_id"), None)
                await _put_on_record(operation_name, about, named, shown)
            return shown

        answered: Resolver = answers_with(kind)(recorded)  # type: ignore[assignment]
        return answered

    return field


async def _put_on_record(operation_name: str, about: str, named: str | None, refusal: Refusal) -> None:
    """Raises nothing."""
    current = operation()
    caller = current.caller
    status, error_code = words_of(refusal.code.value)
    await current.runtime.audit_log.add_failed(
        FailedRequest(
            operation=operation_name,
            status=status,
            error_code=error_code,
            message=refusal.message,
            caller=caller,
            as_admin=caller.principal.is_root,
            request_id=caller.request_id,
            trace_id=caller.trace_id,
            source_ip=caller.source_ip,
            user_agent=caller.user_agent,
            resource_type=about,
            resource_id=named,
            metadata={"edge": "graphql"},
        )
    )
