"""Python that is written for one operation: functions, and the things that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

LINES_MAX: Final = 2_000
"""Of the code for one operation: fragments that use one another could make it astronomically long."""


class NotCompiled(Exception):  # noqa: N818 - what it is
    """The operation has something that no code is made for: graphql-core executes it."""


class Uncommon(Exception):  # noqa: N818 - what it is
    """A value that graphql-core must look at: it is wrong, or right in a way that is rarely used."""


class Source:
    """Text of functions that grows, and what stands behind the names in it.

    Nothing of a document gets into it but names, which have letters, digits and underscores only, as quoted text.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._named: dict[str, Any] = {"Uncommon": Uncommon}
        self._names: dict[int, str] = {}

    def name(self, thing: Any, prefix: str) -> str:
        """A name for the thing inside the code."""
        name = self._names.get(id(thing)) or self._new_name(prefix)
        self._names[id(thing)] = name
        self._named[name] = thing  # and so its number stays its own
        return name

    def _new_name(self, prefix: str) -> str:
        name = f"{prefix}{len(self._named)}"
        self._named[name] = None
        return name

    @property
    def length(self) -> int:
        """In lines."""
        return len(self._lines)

    def function(self, parameter: str, body: Iterable[str]) -> str:
        """Write a function; its name."""
        name = self._new_name("f")
        self._lines += [f"def {name}({parameter}):", *(f"    {line}" for line in body)]
        if len(self._lines) > LINES_MAX:
            raise NotCompiled("it would be too much code")
        return name

    def constant(self, expression: str) -> str:
        """A name for what the expression is worth after all functions before it; functions after it can use it."""
        name = self._new_name("k")
        self._lines.append(f"{name} = {expression}")
        return name

    def built(self, name: str) -> Callable[[Any], Any]:
        """One of the functions."""
        code = compile("\n".join(self._lines), "<operation>", "exec")
        exec(code, self._named)  # noqa: S102 - written by this package alone
        built: Callable[[Any], Any] = self._named[name]
        return built


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
