"""The dashboard's own unit tests, which run on Node: amounts, time, charts, filters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DASHBOARD = Path(__file__).parents[2] / "frontend-examples" / "dashboard"
VITEST = DASHBOARD / "node_modules" / "vitest" / "vitest.mjs"
NODE = shutil.which("node")


@pytest.mark.skipif(
    NODE is None or not VITEST.exists(), reason="vitest is not installed: make dashboard (it needs Node)"
)
def test_amounts_time_charts_and_filters_hold() -> None:
    assert NODE is not None
    done = subprocess.run(
        [NODE, VITEST, "run", "--maxWorkers=1"], cwd=DASHBOARD, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
