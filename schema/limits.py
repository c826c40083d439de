"""How much one request may ask for. Everything has a limit with a name; more is refused with a code, never cut short.

Depth, aliases and overlaps are properties of the document and are checked once for each text, by `schema.documents`.
Cost depends on variables too: `schema.cost` works it out before anything is executed. What nobody can know before is
counted off as it comes: `Operation.take`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from graphql import (
    ASTValidationRule,
    FieldNode,
    FragmentSpreadNode,
    GraphQLError,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    ValidationContext,
)
from graphql.validation import OverlappingFieldsCanBeMergedRule
from graphql.validation.validate import ValidationAbortedError

from schema.bounds import (
    ALIASES_MAX,
    DEPTH_MAX,
    DOCUMENT_LENGTH_MAX,
    LIST_MAX,
    MERGE_STEPS_MAX,
    TEXT_MAX,
    TOLD_MAX,
    VALUES_MAX,
)
from schema.cost import Cost, fragments_of
from schema.failures import INVALID_INPUT, TOO_DEEP, RequestError, own_path


@dataclass(frozen=True, slots=True)
class _Size:
    depth: int = 0
    aliases: int = 0


_UNLIMITED: Final = 1 << 30
"""Where sums stop growing: fragments that use one another could make them astronomically large."""


class DocumentLimits(ASTValidationRule):
    """Refuses a document that is too deep or has too many aliases. Introspection is bounded by graphql-core itself."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self._fragments = fragments_of(context.document)
        self._sizes: dict[str, _Size] = {}
        self._open: set[str] = set()

    def enter_operation_definition(self, node: OperationDefinitionNode, *_: Any) -> None:
        size = self._size_of(node.selection_set.selections)
        for code, what, found, limit in (
            (TOO_DEEP, "levels of fields", size.depth, DEPTH_MAX),
            ("TOO_MANY_ALIASES", "aliases", size.aliases, ALIASES_MAX),
        ):
            if found > limit:
                message = f"the operation has more than {limit} {what}"
                self.report_error(GraphQLError(message, [node], extensions={"code": code, "limit": limit}))

    def _size_of(self, selections: Iterable[SelectionNode]) -> _Size:
        sizes = [self._size_of_one(selection) for selection in selections]
        depth = max((size.depth for size in sizes), default=0)
        return _Size(depth, min(sum(size.aliases for size in sizes), _UNLIMITED))

    def _size_of_one(self, selection: SelectionNode) -> _Size:
        if isinstance(selection, FragmentSpreadNode):
            return self._size_of_fragment(selection.name.value)
        inner = getattr(selection, "selection_set", None)
        size = self._size_of(inner.selections) if inner is not None else _Size()
        if not isinstance(selection, FieldNode):
            return size
        is_introspection = selection.name.value.startswith("__")
        return _Size(0 if is_introspection else size.depth + 1, size.aliases + (selection.alias is not None))

    def _size_of_fragment(self, name: str) -> _Size:
        """Each fragment is measured once. One that uses itself, or is not there, is another rule's error."""
        if name in self._open or name not in self._fragments:
            return _Size()
        if name not in self._sizes:
            self._open.add(name)
            self._sizes[name] = self._size_of(self._fragments[name].selection_set.selections)
            self._open.discard(name)
        return self._sizes[name]


class FieldsMerge(OverlappingFieldsCanBeMergedRule):
    """The specification's rule, given up early and with a reason instead of late and without."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self.rule_context.remaining_complexity_budget = MERGE_STEPS_MAX

    def enter_selection_set(self, selection_set: SelectionSetNode, _key: Any, parent: Any, *others: Any) -> None:
        try:
            super().enter_selection_set(selection_set, _key, parent, *others)
        except ValidationAbortedError:
            message = (
                f"it takes more than {MERGE_STEPS_MAX} steps to find out which fields of the document are the same: "
                "name fewer fields, or use fewer fragments, more than once in a place"
            )
            extensions = {"code": "TOO_MANY_OVERLAPS", "limit": MERGE_STEPS_MAX}
            raise ValidationAbortedError(message, [selection_set], extensions=extensions) from None


def refuse_document(text: str) -> GraphQLError | None:
    """None if the text may be parsed."""
    if len(text) <= DOCUMENT_LENGTH_MAX:
        return None
    message = f"the document has {len(text)} characters, at most {DOCUMENT_LENGTH_MAX} are read: use variables"
    return RequestError("DOCUMENT_TOO_LONG", message, limit=DOCUMENT_LENGTH_MAX)


def refuse_cost(cost: Cost, *, most: int, introspection_most: int) -> GraphQLError | None:
    """None if the operation may be executed."""
    if not cost.is_whole:
        message = "the operation has too many fields to count, once its fragments are written out"
        return RequestError("TOO_COSTLY", message, limit=most)
    if cost.introspection > introspection_most:
        message = (
            f"what is asked about the schema costs {cost.introspection}, at most {introspection_most} may be asked for"
        )
        return RequestError("TOO_COSTLY", message, cost=cost.introspection, limit=introspection_most, field="__schema")
    if cost.total <= most:
        return None
    path = ".".join(cost.heaviest)
    message = f"the operation costs {cost.total}, at most {most} are allowed"
    hint = f": most of it is for {path}; ask for fewer items with `first`, or for fewer fields" if path else ""
    return RequestError("TOO_COSTLY", message + hint, cost=cost.total, limit=most, **({"field": path} if path else {}))


_SMALL: Final = frozenset((int, bool, float, type(None)))
"""What has nothing in it, whatever it is."""


def refuse_variables(variables: Mapping[str, Any] | None) -> GraphQLError | None:
    """None if the variables may be looked at one by one: they are neither too many nor too long."""
    left = VALUES_MAX
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), variables)] if variables else []
    while waiting:
        path, entries = waiting.pop()
        if len(entries) > LIST_MAX:
            return _too_large(path, f"at most {LIST_MAX} entries, not {len(entries)}", "too-many")
        left -= len(entries)
        if left < 0:
            return _too_large((), f"at most {VALUES_MAX} values in all", "too-many")
        for step, value in entries.items() if isinstance(entries, Mapping) else enumerate(entries):
            if type(value) in _SMALL:
                continue
            if isinstance(value, str):
                if len(value) > TEXT_MAX:
                    return _too_large((path, step), f"at most {TEXT_MAX} characters, not {len(value)}", "too-long")
            elif isinstance(value, dict | list | Mapping | Sequence):  # those of JSON are found first, and fast
                waiting.append(((path, step), value))
    return None


def _too_large(path: tuple[Any, ...], message: str, reason: str) -> GraphQLError:
    """`path`: nested pairs, the last step outermost: paths are made for the one that is told."""
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    field = own_path("".join(reversed(steps)).removeprefix("."))[:TOLD_MAX] or "variables"
    return RequestError(INVALID_INPUT, f"{field} must have {message}", field=field, reason=reason)
