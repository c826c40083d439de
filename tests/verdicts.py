"""How turns that were decided from memory ended: read off the measure that operators see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY

from storage.premises import Verdict


def verdicts(context: str) -> dict[str, float]:
    """How often each way so far, in this process."""
    labels = [{"context": context, "verdict": verdict.value} for verdict in Verdict]
    return {each["verdict"]: REGISTRY.get_sample_value("earmark_turns_ahead_total", each) or 0.0 for each in labels}


@contextmanager
def ending(context: str, **expected: int) -> Iterator[None]:
    """Exactly so many of them end in these ways meanwhile."""
    before = verdicts(context)
    yield
    after = verdicts(context)
    ended = {verdict: after[verdict] - count for verdict, count in before.items() if after[verdict] != count}
    assert ended == {verdict.replace("_", " "): count for verdict, count in expected.items()}
