"""The timeline against a naive one: level, peak and steps on random terms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.capacity import timeline as module
from domain.capacity.timeline import Timeline

TERM = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(-3, 5))


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of eight points, so that a handful of terms crosses and splits several."""
    monkeypatch.setattr(module, "CHUNK_MAX", 8)


@settings(max_examples=200, deadline=None)
@given(first=st.lists(TERM, max_size=20), more=st.lists(TERM, max_size=40), since=st.integers(0, 70))
def test_it_agrees_with_the_sum_over_terms(
    first: list[tuple[int, int, int]], more: list[tuple[int, int, int]], since: int
) -> None:
    timeline = Timeline(first)
    for starts_at, ends_at, slots in more:
        timeline.add(starts_at, ends_at, slots)
    terms = first + more
    levels = [sum(slots for s, e, slots in terms if s <= instant < e) for instant in range(80)]
    assert [timeline.level(instant) for instant in range(80)] == levels
    for until in range(since + 1, 80, 7):
        assert timeline.peak(since, until) == max(levels[since:until])
    expected = [(since, levels[since])]
    for instant in range(since + 1, 80):
        if levels[instant] != expected[-1][1]:
            expected.append((instant, levels[instant]))
    assert list(timeline.steps(since, 80)) == expected


@settings(max_examples=50, deadline=None)
@given(terms=st.lists(TERM, min_size=1, max_size=60), instant=st.integers(0, 60))
def test_forgetting_the_past_leaves_the_future(terms: list[tuple[int, int, int]], instant: int) -> None:
    timeline, whole = Timeline(terms), Timeline(terms)
    timeline.forget_before(instant)
    assert [timeline.level(at) for at in range(instant, 70)] == [whole.level(at) for at in range(instant, 70)]
    assert timeline.peak(instant, 70) == whole.peak(instant, 70)
    assert len(timeline) <= len(whole)
