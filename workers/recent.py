"""What was answered lately, by request key: a retry that comes soon is told from memory, before anything is decided.

Only what is committed gets in. The tables stay the truth: whoever is not found here is looked for there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from domain.replay import RequestKey
from domain.terms import MINUTE_MS
from workers.clock import Clock

Answer = TypeVar("Answer")

RECENT_MAX: Final = 20_000
"""Requests remembered in memory: a second or two of a busy node, which is when most retries come; some ten megabytes."""
RECENT_MS: Final = 10 * MINUTE_MS
"""How long at most: well below any retention, so that what is forgotten there is not remembered here."""


class Recent(Generic[Answer]):
    """The newest answers of one context on this node; beyond the limits the oldest are dropped."""

    def __init__(self, clock: Clock, *, most: int = RECENT_MAX) -> None:
        self._clock = clock
        self._answers: OrderedDict[RequestKey, tuple[Answer, int]] = OrderedDict()
        self._most = most

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: RequestKey) -> Answer | None:
        found = self._answers.get(key)
        if found is None or found[1] < self._clock.local_ms() - RECENT_MS:
            return None
        return found[0]

    def note(self, answers: Mapping[RequestKey, Answer]) -> None:
        """These are durable now."""
        now = self._clock.local_ms()
        self._answers.update({key: (answer, now) for key, answer in answers.items()})
        for _ in range(len(self._answers) - self._most):
            self._answers.popitem(last=False)

    def beside(self, under_way: Mapping[RequestKey, Answer]) -> Known[Answer]:
        """Together with the answers of a batch that is being written: for decisions that fall with it."""
        return Known(self, under_way)


@dataclass(frozen=True, slots=True)
class Known(Generic[Answer]):
    recent: Recent[Answer]
    under_way: Mapping[RequestKey, Answer]

    def get(self, key: RequestKey) -> Answer | None:
        return self.under_way.get(key) or self.recent.get(key)
