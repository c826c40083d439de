"""Environments of their own for other makers' Python clients, made once and kept in the user's cache.

The clients must not share ours: they are tested as their users install them, with whatever they need.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PIP_SECONDS = 480
"""The larger environment has some sixty packages."""
CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Environment:
    """`requirements` pins what is tested; what that needs in turn is the index's choice, as it is for its users."""

    name: str
    requirements: tuple[str, ...]

    def python(self) -> Path:
        """The environment's interpreter. Skips the test where pip cannot reach an index."""
        home = self._home()
        home.parent.mkdir(parents=True, exist_ok=True)
        with _locked(home.with_suffix(".lock")):
            if not (home / "ready").exists():
                self._make(home)
        return home / "bin" / "python"

    def _home(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        mark = hashlib.sha256(repr((self.requirements, sys.version_info[:2])).encode()).hexdigest()[:12]
        return cache / "earmark-tests" / f"{self.name}-{mark}"

    def _make(self, home: Path) -> None:
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        problem = _pip(home / "bin" / "python", self.requirements)
        if problem is not None:
            shutil.rmtree(home, ignore_errors=True)
            pytest.skip(f"pip cannot install {' '.join(self.requirements)} here: {problem}")
        (home / "ready").touch()


SCRIPTS = Path(__file__).parents[2] / "frontend-examples" / "scripts-python" / "requirements.txt"

CLIENT = Environment("runcycles", tuple(SCRIPTS.read_text().split()))
"""What our own example asks for: one environment serves both."""
AGENTS = Environment(
    "runcycles-agents",
    (
        "runcycles==0.5.3",
        "langchain-runcycles==0.4.0",
        "langchain==1.5.2",
        "runcycles-openai-agents==0.3.0",
        "openai-agents==0.24.0",
    ),
)


def _pip(python: Path, requirements: Sequence[str]) -> str | None:
    """Install; what went wrong in a line."""
    command = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--retries", "1", "--timeout", str(CONNECT_SECONDS), *requirements]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PIP_SECONDS)
    except subprocess.TimeoutExpired:
        return f"not within {PIP_SECONDS} s"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time: workers of one run, and runs beside each other, want the same environment."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
