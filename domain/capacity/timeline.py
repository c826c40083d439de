"""Granted slots over time as a step function: what `peak` reads and every grant adds to.

The points are kept in chunks, each with its own maximum and a pending addition, so that a term that covers a hundred
thousand points touches some hundred chunks and two partly covered ones instead of every point.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

CHUNK_MAX: Final = 512
"""A chunk splits in two beyond this many points: halves of 256 were the fastest when measured."""


class _Chunk:
    """A run of points in time order. The level right after `times[i]` is `levels[i] + pending`."""

    __slots__ = ("levels", "pending", "times", "top")

    def __init__(self, times: list[int], levels: list[int]) -> None:
        self.times = times
        self.levels = levels
        self.pending = 0
        self.top = max(levels)

    def split(self) -> _Chunk:
        half = len(self.times) // 2
        upper = _Chunk(self.times[half:], self.levels[half:])
        upper.pending = self.pending
        del self.times[half:], self.levels[half:]
        self.top = max(self.levels)
        return upper


class Timeline:
    """Level of granted slots at every instant; zero before the first point.

    All terms are half-open: a term counts at its start and no longer at its end (R1).
    """

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, terms: Iterable[tuple[int, int, int]] = ()) -> None:
        """Build from (starts_at, ends_at, slots) in one sweep."""
        changes: dict[int, int] = {}
        for starts_at, ends_at, slots in terms:
            if starts_at < ends_at:
                changes[starts_at] = changes.get(starts_at, 0) + slots
                changes[ends_at] = changes.get(ends_at, 0) - slots
        times = sorted(changes)
        levels = list(accumulate(changes[time] for time in times))
        half = CHUNK_MAX // 2
        self._chunks = [_Chunk(times[i : i + half], levels[i : i + half]) for i in range(0, len(times), half)]
        self._firsts = [chunk.times[0] for chunk in self._chunks]

    def add(self, starts_at: int, ends_at: int, slots: int) -> None:
        """Raise the level by `slots` (which may be negative) over [starts_at, ends_at)."""
        if starts_at >= ends_at or slots == 0:
            return
        if (index := self._one_chunk(starts_at, ends_at)) is not None:
            self._add_within(index, starts_at, ends_at, slots)
            return
        self._point(starts_at)
        self._point(ends_at)
        for chunk, low, high in self._covering(starts_at, ends_at):
            if low == 0 and high == len(chunk.times):
                chunk.pending += slots
                continue
            for position in range(low, high):
                chunk.levels[position] += slots
            changed = chunk.levels if slots < 0 else (chunk.top, *chunk.levels[low:high])
            chunk.top = max(changed)

    def peak(self, starts_at: int, ends_at: int) -> int:
        """The highest level inside [starts_at, ends_at): the peak of R10."""
        if starts_at < ends_at and (index := self._one_chunk(starts_at, ends_at)) is not None:
            chunk = self._chunks[index]
            if low := bisect_right(chunk.times, starts_at):  # from the level that holds at the start
                return max(chunk.levels[low - 1 : bisect_left(chunk.times, ends_at)]) + chunk.pending
        highest = self.level(starts_at)
        for chunk, low, high in self._covering(starts_at, ends_at):
            whole = low == 0 and high == len(chunk.times)
            top = chunk.top if whole else max(chunk.levels[low:high], default=-chunk.pending)
            highest = max(highest, top + chunk.pending)
        return highest

    def level(self, instant: int) -> int:
        """The level at `instant`."""
        index = bisect_right(self._firsts, instant) - 1
        if index < 0:
            return 0
        chunk = self._chunks[index]
        return chunk.levels[bisect_right(chunk.times, instant) - 1] + chunk.pending

    def steps(self, starts_at: int, ends_at: int) -> Iterator[tuple[int, int]]:
        """(instant, level from then on) over [starts_at, ends_at): the level at the start, then every change."""
        previous = self.level(starts_at)
        yield starts_at, previous
        for chunk, low, high in self._covering(starts_at + 1, ends_at):
            for position in range(low, high):
                level = chunk.levels[position] + chunk.pending
                if level != previous:
                    yield chunk.times[position], level
                    previous = level

    def forget_before(self, instant: int) -> None:
        """Drop the points that no question at or after `instant` can reach."""
        keep = max(0, bisect_right(self._firsts, instant) - 1)
        del self._chunks[:keep], self._firsts[:keep]

    def __len__(self) -> int:
        return sum(len(chunk.times) for chunk in self._chunks)

    def _covering(self, starts_at: int, ends_at: int) -> Iterator[tuple[_Chunk, int, int]]:
        """Chunks with points in [starts_at, ends_at), each with the range of its positions."""
        first = max(0, bisect_right(self._firsts, starts_at) - 1)
        for index in range(first, len(self._chunks)):
            chunk = self._chunks[index]
            if chunk.times[0] >= ends_at:
                return
            low = 0 if chunk.times[0] >= starts_at else bisect_left(chunk.times, starts_at)
            high = len(chunk.times) if chunk.times[-1] < ends_at else bisect_left(chunk.times, ends_at)
            if low < high:
                yield chunk, low, high

    def _one_chunk(self, starts_at: int, ends_at: int) -> int | None:
        """The chunk that holds all of [starts_at, ends_at), as most short terms are; None when there are several."""
        index = max(0, bisect_right(self._firsts, starts_at) - 1)
        following = index + 1
        if self._chunks and (following == len(self._firsts) or ends_at < self._firsts[following]):
            return index
        return None

    def _add_within(self, index: int, starts_at: int, ends_at: int, slots: int) -> None:
        """The same as `add`, with fewer looks."""
        chunk = self._chunks[index]
        times, levels = chunk.times, chunk.levels
        low = bisect_left(times, starts_at)
        if low == len(times) or times[low] != starts_at:
            times.insert(low, starts_at)
            levels.insert(low, levels[low - 1] if low else -chunk.pending)
        high = bisect_left(times, ends_at, low + 1)
        if high == len(times) or times[high] != ends_at:
            times.insert(high, ends_at)
            levels.insert(high, levels[high - 1])
        raised = [level + slots for level in levels[low:high]]
        levels[low:high] = raised
        chunk.top = max(levels) if slots < 0 else max(chunk.top, levels[high], *raised)
        self._firsts[index] = times[0]
        self._split_when_full(index)

    def _split_when_full(self, index: int) -> None:
        chunk = self._chunks[index]
        if len(chunk.times) > CHUNK_MAX:
            upper = chunk.split()
            self._chunks.insert(index + 1, upper)
            self._firsts.insert(index + 1, upper.times[0])

    def _point(self, instant: int) -> None:
        """Make sure that `instant` is a point, at the level that holds there already."""
        if not self._chunks:
            self._chunks.append(_Chunk([instant], [0]))
            self._firsts.append(instant)
            return
        index = max(0, bisect_right(self._firsts, instant) - 1)
        chunk = self._chunks[index]
        position = bisect_left(chunk.times, instant)
        if position < len(chunk.times) and chunk.times[position] == instant:
            return
        level = chunk.levels[position - 1] if position else -chunk.pending
        chunk.times.insert(position, instant)
        chunk.levels.insert(position, level)
        chunk.top = max(chunk.top, level)
        self._firsts[index] = chunk.times[0]
        self._split_when_full(index)
