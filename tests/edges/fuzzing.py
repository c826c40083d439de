"""schemathesis, as a process of its own: always the same requests, a bounded number of them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

SEEDED = ("--seed", "1", "--workers", "1", "--warnings", "off", "--no-color")


async def schemathesis(folder: Path, document: str, *options: str, key: tuple[str, str]) -> None:
    """Fails with what it prints. `document`: a file in the folder, or a URL. `key`: the header that says who asks."""
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("schemathesis"), "run", document, *SEEDED, *options),
        *("--header", ": ".join(key)),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
