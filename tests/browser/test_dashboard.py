"""The dashboard in a real browser, on a server of its own: what a script changes is seen, and what is clicked is done."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from tests.browser.chromium import needs_chromium, opened_browser
from tests.browser.house import BUILT, L4, PATIENCE_MS, House, Visit, open_house, visiting
from tests.databases import Databases

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(not BUILT.exists(), reason="the dashboard is not built: make dashboard (it needs Node)"),
]


@pytest.fixture(scope="module")
async def house(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    url = await databases.create()
    async with open_house(url, tmp_path_factory.mktemp("house")) as opened:
        yield opened
    await databases.drop(url)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    async with opened_browser() as opened:
        yield opened


@pytest.fixture
async def visit(browser: Browser, house: House) -> AsyncIterator[Visit]:
    """Nobody is signed in yet. At the end the page must have complained about nothing."""
    async with visiting(browser, house) as made:
        yield made
        assert made.complaints == []


async def test_a_grant_that_a_script_makes_appears_by_itself(visit: Visit) -> None:
    page = visit.page
    await visit.sign_in()
    await visit.is_live()
    card = page.get_by_role("region", name="h100-year")
    await expect(card.get_by_role("link", name="12 slots to Bluefin Robotics")).to_be_visible()
    await expect(card.get_by_role("link", name="3 slots to Lantern Health")).to_have_count(0)
    grant_id = await visit.house.grant(grantTenantId="lantern", slots=3)
    drawn = card.get_by_role("link", name="3 slots to Lantern Health")
    await expect(drawn).to_be_visible()
    await expect(drawn).to_have_attribute("href", f"/dashboard/grants/{grant_id}")
    assert (
        await page.evaluate("Object.keys(localStorage).some((name) => localStorage[name].startsWith('emk_'))") is False
    )


async def test_a_wrong_key_is_refused_with_advice_and_not_kept(browser: Browser, house: House) -> None:
    async with visiting(browser, house) as visit:
        await visit.go("capacity")
        await visit.page.get_by_label("API key").fill("emk_nobodys_key_at_all_0123456789")
        await visit.page.get_by_role("button", name="Sign in").click()
        alert = visit.page.get_by_role("alert")
        await expect(alert).to_contain_text("Sign in with a key that is valid")
        assert await visit.page.evaluate("sessionStorage.length") == 0


async def test_a_grant_is_found_room_for_planned_made_and_ended(visit: Visit) -> None:
    page = visit.page
    await visit.sign_in()
    await page.get_by_role("button", name="Find room for a grant").click()
    await page.get_by_label("Tenant", exact=True).last.select_option(label="Quarry Vision")
    await page.get_by_label("Slots", exact=True).fill("5")
    await page.get_by_label("For", exact=True).fill("2")
    await page.get_by_role("button", name="Plan on l4-quarter").first.click()
    form = page.get_by_role("form", name="Grant on l4-quarter")
    await expect(form).to_contain_text("It fits.")
    await form.get_by_role("button", name="Grant 5 slots").click()
    await page.get_by_role("link", name="Look at it").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("5 slots on l4-quarter")
    grant_id = page.url.rpartition("/")[2]
    await page.get_by_role("button", name="End now…").click()
    await page.get_by_role("button", name="End the grant").click()
    await expect(page.locator(".lead")).to_contain_text("ended")
    await expect(page.get_by_role("table", name="Events of the grant")).to_contain_text("ended")
    asked = await visit.house.ask("query($id: ID!) { grant(id: $id) { state tenantId slots } }", id=grant_id)
    assert asked["grant"] == {"state": "ENDED", "tenantId": "quarry", "slots": 5}


async def test_a_refusal_is_explained_with_what_is_in_the_way_and_with_the_field(visit: Visit) -> None:
    page = visit.page
    await visit.sign_in(path="capacity?fit=1")
    await page.get_by_label("Tenant", exact=True).last.select_option(label="Lantern Health")
    await page.get_by_label("Slots", exact=True).fill("8")
    await page.get_by_label("For", exact=True).fill("2")
    await page.get_by_role("button", name="Plan on l4-quarter").first.click()
    form = page.get_by_role("form", name="Grant on l4-quarter")
    await expect(form).to_contain_text("It fits.")
    await visit.house.grant(reservationId=L4, grantTenantId="bluefin", slots=10)
    alert = form.get_by_role("alert")
    await expect(alert).to_contain_text("CAPACITY_UNAVAILABLE")
    await expect(alert).to_contain_text("missing")
    await alert.get_by_role("button", name="Use that term").click()
    await expect(form).to_contain_text("It fits.")
    await form.get_by_label("Ends").fill("2026-01-01T00:00")
    await form.get_by_role("button", name="Grant 8 slots").click()
    await expect(form.get_by_role("alert").first).to_contain_text("field “")
    await expect(form.locator(":invalid, [aria-invalid=true]")).to_have_count(1)
