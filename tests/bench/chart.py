"""Ratios as a picture: one bar a comparison and baseline, with its goal as a stroke. SVG, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from tests.bench.harness import Comparison

ROW: Final = 22
LEFT: Final = 420
WIDTH: Final = 480
MARGIN: Final = 70


def write_chart(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Bars from nothing to the median ratio, on one scale."""
    rows = [
        (f"{each.title}, {each.clients} clients / {name}", middle, each.goal if at == 0 else None)
        for each in comparisons
        for at, (name, (_, middle, _)) in enumerate(each.ratios.items())
    ]
    longest = max((value for _, ratio, goal in rows for value in (ratio, goal or 0.0)), default=1.0) or 1.0
    lines = [line for number, row in enumerate(rows) for line in _bar(number, *row, scale=WIDTH / longest)]
    size = f'width="{LEFT + WIDTH + MARGIN}" height="{ROW * (len(rows) + 1)}"'
    style = "<style>text{font:12px sans-serif}</style>"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', style, *lines, "</svg>"]) + "\n", "utf-8"
    )


def _bar(number: int, title: str, ratio: float, goal: float | None, *, scale: float) -> list[str]:
    top = ROW * number + ROW // 2
    length = ratio * scale
    colour = "#2a7f62" if goal is None or ratio >= goal else "#b5543c"
    lines = [
        f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{escape(title)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{ROW - 6}" fill="{colour}"/>',
        f'<text x="{LEFT + length + 4:.1f}" y="{top + 12}">{ratio:.1f}x</text>',
    ]
    if goal is not None:
        at = LEFT + goal * scale
        lines.append(f'<path d="M{at:.1f} {top - 2}v{ROW - 2}" stroke="#333" stroke-dasharray="3 2"/>')
    return lines
