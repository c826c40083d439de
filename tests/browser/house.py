"""What the dashboard is looked at with: the demo's world without its traffic, served by a process of its own, a script
that asks over GraphQL like anybody's, and a page that is signed in."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from playwright.async_api import Browser, Page, expect

from domain.terms import DAY_MS
from server.demo.world import RESERVATIONS, Builder, World
from storage.database import Database
from tests.faults.serving import Served
from tests.ports import reserved_port
from workers.authority import new_secret
from workers.runtime import Runtime, RuntimeOptions

REPOSITORY: Final = Path(__file__).parents[2]
BUILT: Final = REPOSITORY / "server" / "static" / "dashboard" / "index.html"
AXE: Final = REPOSITORY / "frontend-examples" / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
PATIENCE_MS: Final = 60_000
"""For anything that a page should come to: generous, since tests share their machine."""
H100, L4 = (reservation["reservation_id"] for reservation in RESERVATIONS)


@dataclass
class House:
    """The server, its keys, and a script's way to it."""

    served: Served
    world: World
    client: httpx2.AsyncClient
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def address(self) -> str:
        return f"{self.served.address}/dashboard"

    async def ask(self, document: str, *, key: str | None = None, **variables: Any) -> Any:
        """The data; anything else is the test's fault."""
        response = await self.client.post(
            f"{self.served.address}/graphql",
            json={"query": document, "variables": variables},
            headers={"authorization": f"Bearer {key or self.world.root_key}"},
        )
        answer = response.json()
        assert "errors" not in answer, answer
        return answer["data"]

    async def change(self, name: str, given: dict[str, Any], *, key: str | None = None, fields: str = "") -> Any:
        """A mutation by its name. A refusal has its code and message in what is returned."""
        kind = f"{name[0].upper()}{name[1:]}Input"
        document = f"""mutation($input: {kind}!) {{
            {name}(input: $input) {{ __typename {fields} ... on Refusal {{ code message }} }}
        }}"""
        return (await self.ask(document, key=key, input=given))[name]

    async def grant(self, **changes: Any) -> str:
        """A grant of two slots for Bluefin on the first reservation, from now on for a day; its id."""
        now = int(time.time() * 1000)
        given = {
            "tenantId": "root",
            "accountId": self.world.account_id,
            "reservationId": H100,
            "grantTenantId": "bluefin",
            "slots": 2,
            "startsAt": now,
            "endsAt": now + DAY_MS,
            "idempotencyKey": f"script-{next(self._numbers)}",
            **changes,
        }
        made = await self.change("createGrant", given, fields="... on Grant { id }")
        grant_id: str = made["id"]
        return grant_id

    async def restart(self) -> None:
        self.served.stop()
        self.served.start()
        await self.served.ready(self.client)


@asynccontextmanager
async def open_house(url: str, folder: Path) -> AsyncIterator[House]:
    world = World(root_key=new_secret())
    await _furnish(url, world)
    settings = {"webhook_private_addresses": "on", "data_dir": str(folder)}
    served = Served(url, root_key=world.root_key, port=reserved_port(), folder=folder, **settings)
    async with httpx2.AsyncClient(timeout=30) as client:
        served.start()
        try:
            await served.ready(client)
            yield House(served, world, client)
        finally:
            served.stop()


async def _furnish(url: str, world: World) -> None:
    database = await Database.open(url)
    try:
        node = Runtime(database, options=RuntimeOptions(runs_jobs=False))
        try:
            await node.open(root_key=world.root_key)
            await Builder(node, world, root_tenant="root").build()
        finally:
            await node.stop()
    finally:
        await database.close()


@dataclass
class Visit:
    """A page of the dashboard in a browser window of its own, and what it complained about."""

    house: House
    page: Page
    complaints: list[str] = field(default_factory=list)

    async def sign_in(self, key: str | None = None, *, path: str = "capacity") -> None:
        await self.page.goto(f"{self.house.address}/{path}")
        await self.page.get_by_label("API key").fill(key or self.house.world.root_key)
        await self.page.get_by_role("button", name="Sign in").click()
        await expect(self.page.get_by_role("navigation", name="Pages")).to_be_visible()

    async def go(self, path: str) -> None:
        await self.page.goto(f"{self.house.address}/{path}")

    async def is_live(self) -> None:
        await expect(self.page.locator(".live")).to_have_attribute("data-state", "live")


@asynccontextmanager
async def visiting(browser: Browser, house: House, **options: Any) -> AsyncIterator[Visit]:
    context = await browser.new_context(locale="en-GB", timezone_id="Europe/Vienna", **options)
    context.set_default_timeout(PATIENCE_MS)
    visit = Visit(house, await context.new_page())
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("console", lambda said: visit.complaints.append(said.text) if said.type == "error" else None)
    try:
        yield visit
    finally:
        await context.close()


FIND_VIOLATIONS: Final = """async (tags) => {
    const found = await axe.run(document, { runOnly: tags });
    return found.violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id} ${node.target} ${node.failureSummary}`));
}"""
TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


async def violations(page: Page) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA, each with the element it is about."""
    await page.evaluate(AXE.read_text())
    return [str(violation) for violation in await page.evaluate(FIND_VIOLATIONS, list(TAGS))]
