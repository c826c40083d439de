"""Where the examples are, and how they are run: as anybody would, with the packages that they ask for."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.server.processes import WITHIN_S

REPOSITORY: Final = Path(__file__).parents[2]
EXAMPLES: Final = REPOSITORY / "frontend-examples"
NODE_PACKAGES: Final = REPOSITORY / "tests" / "conformance" / "node_modules"


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


async def run(*command: str | Path, settings: Mapping[str, str]) -> Ended:
    """Run a program to its end, with no setting of ours but these."""
    ours = ("EARMARK_", "CYCLES_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**inherited, **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def needed(name: str) -> str:
    """The path of a program of the system. Skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def node_copy(name: str, folder: Path, *, package: str) -> Path:
    """A copy of a Node example, beside the packages that the conformance tests have installed already."""
    needed("node")
    if not (NODE_PACKAGES / package).exists():
        pytest.skip("the Node packages are not installed: make conformance")
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(NODE_PACKAGES)
    return copy
