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

from domain.terms import DAY_MS, HOUR_MS
from server.demo.world import RESERVATIONS, Builder, World, instant, must, root_caller
from tests.faults.serving import Served
from tests.ports import reserved_port
from workers.authority import ensure_root, new_secret
from workers.runtime import RuntimeOptions, running

REPOSITORY: Final = Path(__file__).parents[2]
BUILT: Final = REPOSITORY / "server" / "static" / "dashboard" / "index.html"
AXE: Final = REPOSITORY / "frontend-examples" / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS: Final = Path(__file__).parent / "screenshots"
"""Each page, for whoever reviews it."""
PATIENCE_MS: Final = 60_000
"""For anything that a page should come to: generous, since tests share their machine."""
QUIET: Final = RuntimeOptions(runs_jobs=False)
H100, L4 = (reservation["reservation_id"] for reservation in RESERVATIONS)


@dataclass
class House:
    """The server, its keys, and a script's way to it."""

    url: str
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

    async def grant(self, *, days_ahead: int = 0, **changes: Any) -> str:
        """A grant of two slots for Bluefin on the first reservation, for a day; its id."""
        now = int(time.time() * 1000) + days_ahead * DAY_MS
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
        assert made["__typename"] == "Grant", made
        grant_id: str = made["id"]
        return grant_id

    async def hold(self, amount: int, *, tenant: str, unit: str = "CREDITS", agent: str = "drain") -> str:
        """A hold that an agent of the tenant makes; its id."""
        given = {
            "idempotencyKey": f"hold-{next(self._numbers)}",
            "subject": {"tenant": tenant, "agent": agent},
            "action": {"kind": "llm.completion", "name": "large"},
            "estimate": {"unit": unit, "amount": amount},
            "overagePolicy": "ALLOW_IF_AVAILABLE",
        }
        made = await self.change(
            "reserveBudget", given, key=self.world.tenant_keys[tenant], fields="... on BudgetHold { reservationId }"
        )
        assert made["__typename"] == "BudgetHold", made
        reservation_id: str = made["reservationId"]
        return reservation_id

    async def commit(self, reservation_id: str, amount: int, *, tenant: str) -> None:
        actual = {"unit": "CREDITS", "amount": amount}
        given = {"reservationId": reservation_id, "idempotencyKey": f"pay-{reservation_id}", "actual": actual}
        answer = await self.change("commitBudget", given, key=self.world.tenant_keys[tenant])
        assert answer["__typename"] == "BudgetCommit", answer

    async def grant_elsewhere(self, *, days_ahead: int) -> str:
        """A grant that another node makes, whether the server runs or not; its id."""
        async with running(self.url, options=QUIET) as node:
            now = await instant(node) + days_ahead * DAY_MS
            made = await node.grants.create(
                root_caller("root"),
                tenant_id="root",
                account_id=self.world.account_id,
                reservation_id=H100,
                grant_tenant_id="bluefin",
                project_id=None,
                slots=1,
                starts_at=now,
                ends_at=now + HOUR_MS,
                idempotency_key=f"elsewhere-{next(self._numbers)}",
            )
            return must(made).grant.grant_id


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
            yield House(url, served, world, client)
        finally:
            served.stop()


async def _furnish(url: str, world: World) -> None:
    async with running(url, options=QUIET) as node:
        await ensure_root(node.database, root_tenant_id="root", root_key=world.root_key, clock=node.clock)
        await Builder(node, world, root_tenant="root").build()


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

    async def move(self, path: str) -> None:
        """As a link or the back button does it: without loading anything anew."""
        await self.page.evaluate(
            "(address) => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }",
            f"/dashboard/{path}",
        )

    async def is_live(self) -> None:
        await expect(self.page.locator(".live")).to_have_attribute("data-state", "live")


@asynccontextmanager
async def visiting(browser: Browser, house: House, **options: Any) -> AsyncIterator[Visit]:
    context = await browser.new_context(locale="en-GB", timezone_id="Europe/Vienna", reduced_motion="reduce", **options)
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


async def violations(page: Page, rules: tuple[str, ...] = TAGS) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA, or against these rules, each with the element it is about."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    return [str(violation) for violation in await page.evaluate(FIND_VIOLATIONS, list(rules))]
