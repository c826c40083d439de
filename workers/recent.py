"""What was answered lately, by request key: a retry that comes soon is told from memory, before anything is decided.

Only what is committed gets in. The tables stay the truth: whoever is not found here is looked for there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from domain.replay import RequestKey

Answer = TypeVar("Answer")

RECENT_MAX: Final = 20_000
"""Requests remembered in memory: a second or two of a busy node, which is when most retries come; some ten megabytes."""


class Recent(Generic[Answer]):
    """The newest answers of one context on this node; beyond the limit the oldest are dropped."""

    def __init__(self, *, most: int = RECENT_MAX) -> None:
        self._answers: OrderedDict[RequestKey, Answer] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: RequestKey) -> Answer | None:
        return self._answers.get(key)

    def note(self, answers: Mapping[RequestKey, Answer]) -> None:
        """These are durable now."""
        self._answers.update(answers)
        for _ in range(len(self._answers) - self._most):
            self._answers.popitem(last=False)
