"""What every resolver may reach: the node, who asks, and what this one operation has loaded so far."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from strawberry.extensions import SchemaExtension

from schema.bounds import COST_MAX, ITEMS_MAX
from schema.failures import RequestError, unauthenticated
from schema.loaders import Loaders
from schema.sharing import Known
from workers.request import Caller
from workers.runtime import Runtime


@dataclass(slots=True, kw_only=True)
class Context:
    """One HTTP request, or one socket with all its operations: so nothing of a single operation lives here."""

    runtime: Runtime
    caller: Caller | None = None
    """None for a socket that has not yet said who it is."""
    is_socket: bool = False
    connection_params: Mapping[str, Any] | None = None
    """What a socket's client sent to say who it is."""
    cost_max: int = COST_MAX
    """What one operation may cost (`schema.cost`)."""
    known: Known | None = None
    """What the operation came to, where only the answer is left to be made (`schema.compiled`)."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


_CURRENT: ContextVar[Operation] = ContextVar("operation")


class Operation:
    """One operation. Its loaders batch look-ups and answer each only once."""

    def __init__(self, context: Context) -> None:
        if context.caller is None:
            raise unauthenticated()
        self.runtime = context.runtime
        self.caller = _numbered(context.caller, context)
        self._items_left = ITEMS_MAX
        self._loaders: Loaders | None = None

    @property
    def loaders(self) -> Loaders:
        """Made when first asked for: most events of a subscription need none."""
        if self._loaders is None:
            self._loaders = Loaders(self.runtime.reads, self.runtime.budget_reads)
        return self._loaders

    def begin(self) -> None:
        """Begin an answer: it shows things as they are now, and what it shows is for this operation's caller.

        A subscription begins each of its values so. Whoever reads on may have executed something else meanwhile.
        """
        self._loaders = None
        self._items_left = ITEMS_MAX
        _CURRENT.set(self)

    def take(self, items: int) -> None:
        """Count off the items that a list asks for. Raises TOO_MANY_ITEMS."""
        self._items_left -= items
        if self._items_left < 0:
            message = f"the lists of this operation ask for more than {ITEMS_MAX} items: lower `first`"
            raise RequestError("TOO_MANY_ITEMS", message, limit=ITEMS_MAX)


class PerOperation(SchemaExtension):
    """Opens an `Operation`. Not in the context, which all operations of a socket share: a loader in it would answer the
    second operation from what the first one saw."""

    def on_operation(self) -> Iterator[None]:
        Operation(self.execution_context.context).begin()
        yield


def operation() -> Operation:
    """The one that is being executed."""
    return _CURRENT.get()


def _numbered(caller: Caller, context: Context) -> Caller:
    """Operations of a socket share its request id; a number tells them apart in events and logs."""
    if not context.is_socket or caller.request_id is None:
        return caller
    return replace(caller, request_id=f"{caller.request_id}.{next(context.numbers)}")
