"""The page at `/` in a real browser: it asks nobody but this server, runs operations, and shows events as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from graphql import build_schema, parse, validate
from playwright.async_api import Page, expect

from schema.root import sdl
from tests.browser.chromium import needs_chromium, opened_browser
from tests.databases import Databases
from tests.edges.world import ROOT, A, World, furnish, open_world, served, until

pytestmark = needs_chromium


@dataclass
class Opened:
    """The page, the world behind it, and what the browser asked for and complained about."""

    page: Page
    world: World
    address: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def sign_in(self, tenant_id: str) -> None:
        await self.page.fill("#key", self.world.secrets[tenant_id])
        await self.page.press("#key", "Enter")
        await expect(self.page.locator("#who")).to_contain_text("acting for")

    async def run(self, operation: str) -> None:
        await self.page.fill("#query", operation)
        await self.page.press("#query", "Control+Enter")


@pytest.fixture
async def opened(databases: Databases) -> AsyncIterator[Opened]:
    url = await databases.create()
    furnished = await furnish(url)
    async with open_world(url, furnished) as world, served(world) as address, opened_browser() as browser:
        page = await browser.new_page()
        ide = Opened(page, world, address)
        page.on("request", lambda request: ide.requests.append(request.url))
        page.on("pageerror", lambda error: ide.complaints.append(str(error)))
        page.on("console", lambda said: ide.complaints.append(said.text) if said.type == "error" else None)
        await page.goto(f"{address}/")
        yield ide
    await databases.drop(url)


async def test_it_runs_operations_and_asks_nobody_else(opened: Opened) -> None:
    page, result = opened.page, opened.page.locator("#result")
    await expect(page.locator("#who")).to_have_text("no key yet")
    await opened.sign_in(ROOT)
    await expect(page.locator("#types summary").first).to_have_text("Query ")
    await page.select_option("#examples", label="Reservations (root)")
    await page.click("#run")
    await expect(result).to_contain_text('"reservationId": "large"')
    await opened.run("{ grants(all: true) { totalCount } }")
    await expect(result).to_contain_text('"totalCount": 0')
    assert opened.complaints == []
    assert {url.startswith((opened.address, "data:")) for url in opened.requests} == {True}


async def test_it_shows_events_as_they_come_and_stops(opened: Opened) -> None:
    page, result = opened.page, opened.page.locator("#result")
    await opened.sign_in(A)
    await opened.run("# mine\nsubscription { grantEvents { type grantId } }")
    await expect(result).to_contain_text("waiting for the first event")
    await until(lambda: opened.world.node.hub.count == 1)
    grant = await opened.world.made(opened.world.edge("rest"))
    await expect(result).to_contain_text('"reservation-grant.active"')
    await expect(result).to_contain_text(grant["grantId"])
    await expect(page.locator("#took")).to_have_text("2 so far")
    await page.click("#stop")
    await expect(page.locator("#stop")).to_be_disabled()
    assert opened.complaints == []


async def test_it_tells_what_went_wrong(opened: Opened) -> None:
    result = opened.page.locator("#result")
    await opened.page.fill("#key", "no key at all")
    await opened.page.press("#key", "Enter")
    await expect(opened.page.locator("#who")).to_have_text("this key is not valid")
    await opened.run("subscription { grantEvents { type } }")
    await expect(result).to_contain_text("this key is not valid")
    await opened.sign_in(A)
    await opened.run("{ grants {")
    await expect(result).to_contain_text("INVALID_DOCUMENT")
    await expect(result).to_have_class("bad")
    await opened.page.fill("#variables", "{")
    await opened.run("{ viewer { tenant { id } } }")
    await expect(result).to_contain_text("The variables are not JSON")


async def test_every_draft_of_an_operation_is_a_valid_document(opened: Opened) -> None:
    await opened.sign_in(A)
    schema = build_schema(sdl())
    await opened.page.fill("#search", ".")
    buttons = opened.page.locator("#types button")
    roots = (schema.query_type, schema.mutation_type, schema.subscription_type)
    assert await buttons.count() == sum(len(root.fields) for root in roots if root)
    for button in await buttons.all():
        await button.click()
        document = await opened.page.input_value("#query")
        assert validate(schema, parse(document)) == [], document
