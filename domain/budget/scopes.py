"""Scopes: which budgets a subject falls under, and which strings name a budget (section 2.1).

A scope is a path of `level:value` segments in canonical order. A subject's scopes are all prefixes of its own path; a
level that is absent is skipped, not filled. Paths are lower-case on both sides, so that `Bot` spends from `agent:bot`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from domain.budget.values import LEVELS, Level, Subject
from domain.outcomes import InvalidInput

VALUE_MAX: Final = 128
DIMENSIONS_MAX: Final = 16
DIMENSION_VALUE_MAX: Final = 256

_VALUE: Final = re.compile(rf"[A-Za-z0-9_.-]{{1,{VALUE_MAX}}}")
_TENANT_VALUE: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{VALUE_MAX}}}")
"""Tenants are named by others' rules, which allow a colon: whoever is a tenant can have budgets."""
_BUDGET_VALUE: Final = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
_RANK: Final = {level: rank for rank, level in enumerate(LEVELS)}


def derive_scopes(subject: Subject) -> tuple[str, ...] | InvalidInput:
    """All scopes of a subject in canonical order, from the widest to its own path, whether or not they have budgets.

    An empty value counts as absent. Refuses a subject without a level, and values outside `[A-Za-z0-9_.-]{1,128}`.
    """
    if (refusal := _refuse_dimensions(subject)) is not None:
        return refusal
    return _derive(subject.values)


@lru_cache(maxsize=4_096)  # the same few subjects come again and again; an entry is some hundred bytes
def _derive(values: tuple[str | None, ...]) -> tuple[str, ...] | InvalidInput:
    scopes: list[str] = []
    for level, value in zip(LEVELS, values, strict=True):
        if value is None or value == "":
            continue
        if not (_TENANT_VALUE if level == Level.TENANT else _VALUE).fullmatch(value):
            message = f"{level} may hold letters, digits, '.', '_' and '-', at most {VALUE_MAX} of them"
            return InvalidInput(field=f"subject.{level}", reason="charset", message=message)
        segment = f"{level}:{value.lower()}"
        scopes.append(f"{scopes[-1]}/{segment}" if scopes else segment)
    if not scopes:
        message = "a subject needs one of tenant, workspace, app, workflow, agent, toolset"
        return InvalidInput(field="subject", reason="no-level", message=message)
    return tuple(scopes)


def _refuse_dimensions(subject: Subject) -> InvalidInput | None:
    if not subject.dimensions:
        return None
    if len(subject.dimensions) > DIMENSIONS_MAX:
        message = f"at most {DIMENSIONS_MAX} dimensions"
        return InvalidInput(field="subject.dimensions", reason="too-many", message=message)
    if any(len(value) > DIMENSION_VALUE_MAX for value in subject.dimensions.values()):
        message = f"a dimension holds at most {DIMENSION_VALUE_MAX} characters"
        return InvalidInput(field="subject.dimensions", reason="too-long", message=message)
    return None


def parse_budget_scope(scope: str, *, tenant_id: str) -> str | InvalidInput:
    """The canonical path of a budget: `tenant:<its tenant>` first, then levels in canonical order, no wildcard.

    What may be in a tenant's id is not for this to say; it has to be that tenant's.
    """
    path = scope.lower()
    segments = [segment.partition(":") for segment in path.split("/")]
    ranks = [_RANK.get(level, -1) for level, _, _ in segments]
    if -1 in ranks or ranks[0] != 0 or ranks != sorted(set(ranks)):
        message = f"a budget's scope is tenant:<id>, then any of {', '.join(LEVELS[1:])} in this order"
        return InvalidInput(field="scope", reason="grammar", message=message)
    if any(len(value) > VALUE_MAX or not _BUDGET_VALUE.fullmatch(value) for _, _, value in segments[1:]):
        message = "the ids of a budget's scope begin and end with a letter or digit and hold '.', '_' and '-' besides"
        return InvalidInput(field="scope", reason="charset", message=message)
    if segments[0][2] != tenant_id.lower():
        return InvalidInput(field="scope", reason="other-tenant", message="the scope's tenant is not this tenant")
    return path


def scope_filter_allows(scope_filter: Iterable[str], scope_path: str) -> bool:
    """Whether a key confined to `scope_filter` (`level:id` or `level:*`) may touch this path; no filter allows all."""
    wanted = tuple(entry.lower() for entry in scope_filter)
    if not wanted:
        return True
    segments = scope_path.split("/")
    levels = {f"{segment.partition(':')[0]}:*" for segment in segments}
    return any(entry in segments or entry in levels for entry in wanted)
