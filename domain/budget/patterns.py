"""Patterns that say which scopes a policy governs (section 11.6).

| pattern | governs |
|---|---|
| `tenant:a/agent:x` | requests whose own path is exactly this |
| `tenant:a/*` | requests whose own path lies below `tenant:a` |
| `agent:*` | everything done under any agent |
| `*/agent:x` | everything done under agent `x`, whatever is above it |

The first two are anchored at the root of the path; the last two float. A floating pattern also governs what lies below
the segment it names, since otherwise a client could shed an agent's caps by naming a toolset. A segment may be
`level:*` anywhere, and `/*` may end a floating pattern too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from domain.budget.values import LEVELS
from domain.outcomes import InvalidInput

PATTERN_MAX: Final = 1_024
"""A path of six segments of the longest kind is shorter than this."""

_SEGMENT: Final = re.compile(rf"({'|'.join(LEVELS)}):(\*|[a-z0-9_.-]{{1,128}})|tenant:[a-z0-9_.:-]{{1,128}}")
"""A tenant's id may hold a colon, as in `scopes`."""


@dataclass(frozen=True, slots=True)
class ScopePattern:
    text: str
    segments: tuple[str, ...]
    """Each `level:id` or `level:*`."""
    floating: bool
    below: bool
    """Only what lies strictly below the segments."""

    @property
    def specificity(self) -> int:
        """How many segments it names: the more, the sooner it wins among equals."""
        return len(self.segments)

    def governs(self, scope_path: str) -> bool:
        path = scope_path.split("/")
        spare = len(path) - len(self.segments) - self.below
        if spare < 0:
            return False
        if self.floating:
            return any(self._fits(path, at) for at in range(spare + 1))
        return (self.below or spare == 0) and self._fits(path, 0)

    def _fits(self, path: list[str], at: int) -> bool:
        return all(
            mine == theirs or (mine.endswith(":*") and theirs.startswith(mine[:-1]))
            for mine, theirs in zip(self.segments, path[at:], strict=False)
        )


def parse_pattern(text: str) -> ScopePattern | InvalidInput:
    """The pattern, in lower case as scopes are."""
    segments = text.lower().split("/") if len(text) <= PATTERN_MAX else []
    leading, below = segments[:1] == ["*"], len(segments) > 1 and segments[-1] == "*"
    named = segments[leading : len(segments) - below]
    if not named or not all(_SEGMENT.fullmatch(segment) for segment in named):
        message = "a pattern is a scope, may begin with '*/', may end in '/*', and its ids may be '*'"
        return InvalidInput(field="scope_pattern", reason="grammar", message=message)
    floating = leading or (len(named) == 1 and named[0].endswith(":*"))
    return ScopePattern("/".join(segments), tuple(named), floating, below)
