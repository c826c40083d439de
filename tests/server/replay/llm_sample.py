"""A trace of requests to two services that the tests write themselves: twelve minutes, 360 requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
REQUESTS = 360


def write(path: Path, lines: Sequence[str], *, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return path


def write_traces(folder: Path) -> Path:
    """Answers of `conv` are now short and now long, those of `code` always short."""
    for app, context, answers in (("conv", 300, (40, 700, 200, 600)), ("code", 900, (10, 20, 30, 40))):
        lines = [
            f"2023-11-16 18:{4 * number // 60:02}:{4 * number % 60:02}.5,{context},{answers[number // 3 % 4]}"
            for number in range(180)
        ]
        write(folder / f"AzureLLMInferenceTrace_{app}.csv", lines)
    return folder
