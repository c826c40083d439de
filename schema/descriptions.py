"""Docstrings become the descriptions of the printed contract, so that nothing is said twice."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType

from strawberry.types import get_object_definition


def describe(modules: Iterable[ModuleType]) -> None:
    """Every type of these modules, and every field with a function behind it, gets its docstring as description."""
    for module in modules:
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__:
                _describe(kind)


def _describe(kind: type) -> None:
    enum = getattr(kind, "__strawberry_definition__", None)
    definition = get_object_definition(kind)
    if enum is not None and enum.description is None:
        enum.description = _text(kind.__doc__)
    for field in definition.fields if definition is not None else ():
        if field.description is None and field.base_resolver is not None:
            field.description = _text(field.base_resolver.wrapped_func.__doc__)


def _text(docstring: str | None) -> str | None:
    return inspect.cleandoc(docstring) if docstring else None
