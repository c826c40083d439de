"""README's tour, taken from its text and walked against a real `earmark demo`: each command, and what it prints. Then the
backup of docs/operations.md, made while it runs, restored beside it and audited.

Blocks of `sh` are run one after another in one shell; the `text` after one is what it prints. Ids and instants are
masked, nothing else. A block that begins with LEAVE_IT runs beside the others, as in a terminal of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from graphql import build_schema, parse, validate

from server.demo.world import GRANTS
from storage.budget.audit import find_breaches
from storage.database import connect, read_clock
from tests.capacity_world import eventually
from tests.databases import new_home
from tests.examples.programs import REPOSITORY, needed
from tests.faults.load import with_admissions
from tests.server.processes import WITHIN_S, started
from tests.simulation.auditor import audit_all
from tests.simulation.product_rows import export_rows

README: Final = (REPOSITORY / "README.md").read_text()
OPERATIONS: Final = (REPOSITORY / "docs" / "operations.md").read_text()
LEAVE_IT: Final = "# leave it running\n"
DONE: Final = "-- the end of a block --"
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VOLATILE: Final = (
    (re.compile(r"\b([a-z]+)_[0-9a-hjkmnp-tv-z]{26}\b"), r"\1_ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "INSTANT"),
)


@dataclass(frozen=True)
class Step:
    commands: str
    prints: str

    @property
    def is_left_running(self) -> bool:
        return self.commands.startswith(LEAVE_IT)


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def steps(text: str) -> list[Step]:
    """The blocks of commands, each with the output that follows it."""
    blocks = BLOCK.findall(text)
    followers = [*blocks[1:], ("", "")]
    pairs = zip(blocks, followers, strict=True)
    return [Step(code, told if kind == "text" else "") for (name, code), (kind, told) in pairs if name == "sh"]


def masked(text: str) -> str:
    for volatile, mask in VOLATILE:
        text = volatile.sub(mask, text)
    return text.strip()


@dataclass
class Shell:
    """A shell that stays open: what one block sets, the next one has."""

    process: asyncio.subprocess.Process

    async def run(self, commands: str) -> str:
        """What the commands print, on either channel."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{commands}\necho '{DONE}'\n".encode())
        await self.process.stdin.drain()
        said = await asyncio.wait_for(self.process.stdout.readuntil(f"{DONE}\n".encode()), WITHIN_S)
        return said.decode().removesuffix(f"{DONE}\n")


@asynccontextmanager
async def opened_shell() -> AsyncIterator[Shell]:
    bash, _, _ = needed("bash"), needed("curl"), needed("jq")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EARMARK_", "CYCLES_"))}
    process = await asyncio.create_subprocess_exec(
        bash,
        cwd=REPOSITORY,
        env=inherited,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield Shell(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # it, and what it left running
        await process.communicate()


@dataclass(frozen=True)
class Demo:
    address: str
    key: str
    data_dir: Path


@pytest.fixture(scope="module")
async def demo() -> AsyncIterator[Demo]:
    """A demo whose tenants are at rest, so that every number is certain."""
    home = new_home()
    try:
        async with started("demo", "--quiet", "--port", "0", "--data-dir", str(home)) as server:
            await server.wait_for("Ctrl-C stops it")
            (address,) = re.findall(r"IDE +(http://\S+)/ ", server.plain)
            (key,) = re.findall(r"^  root +(\S+)$", server.plain, re.MULTILINE)
            yield Demo(address, key, home)
            assert await server.stop(signal.SIGINT) == 0
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.timeout(300)
async def test_every_command_of_the_tour_prints_what_the_readme_says(demo: Demo, tmp_path: Path) -> None:
    tour, beside, watched = steps(section(README, "Ten minutes")), tmp_path / "beside", ""
    async with opened_shell() as shell:
        for step in tour:
            commands = step.commands.replace("emk_…", demo.key).replace("http://127.0.0.1:7878", demo.address)
            if step.is_left_running:
                await watch(shell, commands, beside, demo)
                watched = step.prints
            else:
                assert masked(await shell.run(commands)) == masked(step.prints), step.commands

        async def all_is_told() -> bool:
            return len(beside.read_bytes().splitlines()) >= len(watched.splitlines())

        await eventually(all_is_told)
        assert masked(beside.read_text()) == masked(watched) != ""
        await check_budgets(shell, demo)


@pytest.mark.timeout(300)
async def test_a_backup_made_while_it_runs_is_restored_and_the_books_agree(demo: Demo, tmp_path: Path) -> None:
    backup, drill, end = (step.commands for step in steps(section(OPERATIONS, "Backup and restore")))
    async with opened_shell() as shell:
        told = await shell.run(f"DATA={demo.data_dir} BACKUP={tmp_path}\n{backup}")
        assert (tmp_path / "secret.key").read_bytes() == (demo.data_dir / "secret.key").read_bytes(), told
        told = await shell.run(drill)
        assert "FAIL" not in told
        assert "migrations applied" in told
        assert "vps.boundaries: reservations" in told
        await audit((await shell.run('echo "$DRILL"')).strip())
        assert await shell.run(end) == ""


async def audit(url: str) -> None:
    connection = await connect(url)
    try:
        rows = with_admissions(await export_rows(connection, now=await read_clock(connection)))
        tenants = [row["tenant_id"] for row in await connection.fetch("select tenant_id from tenant")]
        assert len(rows["grants"]) >= len(GRANTS)
        assert audit_all(rows) == []
        assert await find_breaches(connection, tenants) == []
    finally:
        await connection.close()


async def watch(shell: Shell, commands: str, beside: Path, demo: Demo) -> None:
    """Run it in a terminal of its own, and go on once the server has a subscriber."""
    await shell.run(f"{{\n{commands}\n}} >{beside} 2>&1 </dev/null &")
    count = f"curl -s {demo.address}/metrics | grep '^earmark_subscribers '"

    async def is_subscribed() -> bool:
        return bool(re.search(r" [1-9]", await shell.run(count)))

    await eventually(is_subscribed)


async def check_budgets(shell: Shell, demo: Demo) -> None:
    """The page about budgets, for another tenant."""
    for step in steps((REPOSITORY / "docs" / "budgets.md").read_text()):
        commands = step.commands.replace("acme-corp", "page-corp").replace("http://127.0.0.1:7878", demo.address)
        said = await shell.run(f"KEY={demo.key}\n{commands}")
        assert '"error"' not in said
        assert said.count("page-corp") >= len(commands.strip().splitlines()) - 1


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_operations_in_the_documentation_are_valid(page: Path) -> None:
    schema = build_schema((REPOSITORY / "schema" / "schema.graphql").read_text())
    for kind, document in BLOCK.findall(page.read_text()):
        if kind == "graphql":
            assert validate(schema, parse(document)) == [], document


def test_the_readme_begins_with_two_commands_and_stays_short() -> None:
    first = README.split("\n## ", 2)[1]
    assert re.findall(r"^    (make \w+)", first, re.MULTILINE) == ["make demo", "make test"]
    assert len(README.splitlines()) < 200


def test_every_page_that_is_linked_is_there() -> None:
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)
