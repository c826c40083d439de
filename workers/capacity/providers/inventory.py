"""The text of an inventory file, parsed: YAML by YAML 1.2's core rules, or JSON, with repeated keys refused.

Only syntax lives here; what the words mean is `file`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

try:
    # The C parser: a large file costs milliseconds, not seconds under the interpreter's lock.
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # pragma: no cover - PyYAML built without libyaml
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

_RESERVATIONS: Final = "reservations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A parsed document, and the line of each entry of its `reservations` where the format tells it."""

    content: Any
    entry_lines: Sequence[int] = ()

    def place(self, index: int) -> str:
        """Where entry `index` stands, for people."""
        name = f"{_RESERVATIONS}[{index}]"
        return f"line {self.entry_lines[index]}, {name}" if index < len(self.entry_lines) else name


class NotReadableError(Exception):
    """The text is not a document of its format; the message says why and where."""


class _Loader(_BaseLoader):
    """Safe loading without YAML 1.1's surprises: its `no`, octal, base-60, dates, merges and tags are not read here."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own class attribute
    yaml_constructors = {  # noqa: RUF012 - likewise
        tag: constructor
        for tag, constructor in _BaseLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in {"map", "seq", "str", "int", "float", "bool", "null"}
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise NotReadableError(f"line {key.start_mark.line + 1}: the key {key.value[:60]} is given twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^-?(?:0|[1-9][0-9]*)$"), list("-0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^-?[0-9]+\.[0-9]+$"), list("-0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""])


def parse_yaml(text: str) -> Inventory:
    """Raises `NotReadableError` for anything but one YAML document that ends with a line break."""
    if not text.endswith("\n"):
        raise NotReadableError("the file does not end with a line break: it may be cut short")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise NotReadableError(f"{line}not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise NotReadableError(f"not YAML: {error}") from error
    return Inventory(content=content, entry_lines=_entry_lines(node))


def parse_json(text: str) -> Inventory:
    """Raises `NotReadableError` for anything but one JSON document."""
    try:
        return Inventory(content=json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant))
    except json.JSONDecodeError as error:
        raise NotReadableError(f"line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise NotReadableError(f"not JSON: {error}") from error


def _entry_lines(root: yaml.Node | None) -> list[int]:
    if not isinstance(root, yaml.MappingNode):
        return []
    for key, value in root.value:
        if isinstance(key, yaml.ScalarNode) and key.value == _RESERVATIONS and isinstance(value, yaml.SequenceNode):
            return [entry.start_mark.line + 1 for entry in value.value]
    return []


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise NotReadableError(f"the key {repeated[:60]} is given twice in one object")
    return content


def _no_constant(name: str) -> Any:
    raise NotReadableError(f"not JSON: {name}")
