"""The dashboard in a real browser, on a server of its own: what a script changes is seen, and what is clicked is done."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.browser.chromium import needs_chromium, opened_browser
from tests.browser.house import AXE, BUILT, L4, PATIENCE_MS, SCREENSHOTS, House, Visit, open_house, violations, visiting
from tests.databases import Databases

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(not BUILT.exists(), reason="the dashboard is not built: make dashboard (it needs Node)"),
]

PAGES = {
    "capacity": ("capacity", "Capacity"),
    "find-a-fit": ("capacity?fit=1", "Capacity"),
    "grants": ("grants", "Grants"),
    "budgets": ("budgets", "Budgets"),
    "budget-reservations": ("holds?tenant=quarry", "Budget reservations"),
    "events": ("events", "Events"),
    "webhooks": ("webhooks", "Webhooks"),
    "tenants": ("tenants", "Tenants and keys"),
    "tenant": ("tenants/bluefin", "Bluefin Robotics"),
    "nothing": ("no/such/page", "Nothing here"),
}
"""Name of its picture to its address and its heading."""
DESK: ViewportSize = {"width": 1360, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


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
    await form.get_by_label("Ends").fill("2001-01-01T00:00")
    await form.get_by_role("button", name="Grant 8 slots").click()
    await expect(form.get_by_role("alert").first).to_contain_text("field “")
    await expect(form.locator(":invalid, [aria-invalid=true]")).to_have_count(1)


async def test_a_budget_drains_and_goes_over_its_limit_before_ones_eyes(visit: Visit) -> None:
    house, page = visit.house, visit.page
    await visit.sign_in(path="budgets?tenant=lantern")
    await visit.is_live()
    table = page.get_by_role("table")
    await expect(table).to_contain_text("tenant:lantern")
    hundred = {"unit": "CREDITS", "amount": 100}
    wanted = {"scope": "tenant:lantern/agent:drain", "unit": "CREDITS", "allocated": hundred}
    await house.change("createBudget", wanted, key=house.world.tenant_keys["lantern"])
    row = table.get_by_role("row").filter(has_text="agent:drain")
    await expect(row).to_contain_text("100 credits")
    held = await house.hold(60, tenant="lantern")
    await expect(row.get_by_role("cell").nth(4)).to_have_text("60 credits")
    await house.commit(held, 60, tenant="lantern")
    await expect(row.get_by_role("cell").nth(3)).to_have_text("60 credits")
    await expect(row.get_by_role("cell").nth(5)).to_have_text("40 credits")
    held = await house.hold(30, tenant="lantern")
    await house.commit(held, 90, tenant="lantern")
    await expect(row).to_contain_text("over limit")
    await row.get_by_role("button", name="Freeze").click()
    await page.get_by_role("dialog").get_by_role("button", name="Freeze", exact=True).click()
    await expect(row).to_contain_text("frozen")


async def test_a_hold_is_released_by_force(visit: Visit) -> None:
    house, page = visit.house, visit.page
    await visit.sign_in(path="holds?tenant=quarry")
    await visit.is_live()
    await expect(page.get_by_text("Nothing was ever held.")).to_be_visible()
    await house.hold(100_000_000, tenant="quarry", unit="USD_MICROCENTS", agent="planner")
    row = page.get_by_role("table").get_by_role("row").nth(1)
    await expect(row).to_contain_text("$1.00")
    await row.get_by_role("button", name="Release").click()
    await page.get_by_role("dialog").get_by_role("button", name="Release it").click()
    await expect(row).to_contain_text("released")


async def test_the_stream_goes_on_after_a_restart_without_a_gap_or_a_double(browser: Browser, house: House) -> None:
    async with visiting(browser, house) as visit:
        await visit.sign_in(path="events?kind=reservation-grant.")
        await visit.is_live()
        table = visit.page.get_by_role("table", name="Events since this tab was opened")
        before = await house.grant(days_ahead=60)
        await expect(table.locator(f"a[href*='{before}']").first).to_be_visible()
        house.served.kill()
        await expect(visit.page.locator(".live")).to_have_attribute("data-state", "lost")
        meanwhile = await house.grant_elsewhere(days_ahead=60)
        house.served.start()
        await house.served.ready(house.client)
        after = await house.grant(days_ahead=60)
        await visit.is_live()
        for grant_id in (before, meanwhile, after):
            row = table.get_by_role("row").filter(has=visit.page.locator(f"a[href*='{grant_id}']"))
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text("reservation-grant.created")


async def test_a_page_that_cannot_be_read_says_so_and_comes_by_itself(browser: Browser, house: House) -> None:
    async with visiting(browser, house) as visit:
        await visit.sign_in()
        await visit.page.route("**/graphql", lambda route: route.abort())
        await visit.page.get_by_role("link", name="Grants", exact=True).click()
        await expect(visit.page.get_by_role("alert").first).to_contain_text("The server does not answer")
        await visit.page.unroute("**/graphql")
        await expect(visit.page.get_by_role("table", name="Grants")).to_be_visible()
        await expect(visit.page.get_by_role("alert")).to_have_count(0)


async def test_a_key_is_shown_once_and_signs_in_as_its_tenant(visit: Visit, browser: Browser) -> None:
    page = visit.page
    await visit.sign_in(path="tenants/bluefin")
    await page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("watcher")
    await dialog.get_by_label("It may").select_option(label="Only look")
    await dialog.get_by_role("button", name="Make the key").click()
    secret = await page.locator(".secret code").inner_text()
    await page.get_by_role("button", name="I have kept it").click()
    await expect(page.get_by_role("row").filter(has_text="watcher")).to_be_visible()
    assert secret not in await page.content()
    async with visiting(browser, visit.house) as other:
        await other.sign_in(secret, path="")
        await expect(other.page.get_by_role("heading", level=1)).to_have_text("Grants")
        await expect(other.page.get_by_role("link", name="Capacity")).to_have_count(0)
        await other.go("tenants")
        await expect(other.page.get_by_role("button", name="New key…")).to_have_count(0)
        assert other.complaints == []


async def test_a_webhook_with_a_wrong_address_is_refused_at_its_field(visit: Visit) -> None:
    page = visit.page
    await visit.sign_in(path="webhooks")
    await page.get_by_role("button", name="New webhook…").click()
    dialog = page.get_by_role("dialog")
    address = dialog.get_by_label("URL")
    await address.fill("ftp://hooks.example.com/earmark")
    await dialog.get_by_label("budget.exhausted").check()
    await dialog.get_by_role("button", name="Subscribe it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("field “URL”")
    await expect(address).to_have_attribute("aria-invalid", "true")
    await address.fill("https://hooks.example.com/earmark")
    await dialog.get_by_role("button", name="Subscribe it").click()
    await expect(page.locator(".secret")).to_be_visible()
    await page.get_by_role("button", name="I have kept it").click()
    await page.get_by_role("link", name="https://hooks.example.com/earmark").click()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".lead")).to_contain_text("paused")


@pytest.mark.skipif(not AXE.exists(), reason="axe is not installed: make dashboard (it needs Node)")
@pytest.mark.timeout(300)
async def test_every_page_is_accessible_in_light_and_dark_and_fits_a_phone(visit: Visit) -> None:
    page, house = visit.page, visit.house
    await page.set_viewport_size(DESK)
    await visit.go("")
    found = {"sign-in": await looked_at(page, "sign-in")}
    await visit.sign_in()
    await visit.is_live()
    active = await house.ask("{ grants(all: true, state: ACTIVE, first: 1) { nodes { id slots } } }")
    (grant,) = active["grants"]["nodes"]
    for name, (path, heading) in {**PAGES, "grant": (f"grants/{grant['id']}", f"{grant['slots']} slots on")}.items():
        await visit.move(path)
        await expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        found[name] = await looked_at(page, name)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.skipif(not AXE.exists(), reason="axe is not installed: make dashboard (it needs Node)")
async def test_a_dialog_is_accessible_and_gives_the_focus_back(visit: Visit) -> None:
    page = visit.page
    await page.set_viewport_size(DESK)
    await visit.sign_in(path="budgets?tenant=northwind")
    button = page.get_by_role("button", name="Fund").first
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await looked_at(page, "dialog") == []
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(button).to_be_focused()


async def looked_at(page: Page, name: str) -> list[str]:
    """What axe has to say about the page, and whether it runs out of a phone's screen. Leaves pictures of it."""
    await expect(page.locator("h1, h2").first).to_be_visible()
    await expect(page.locator(".waiting")).to_have_count(0)
    SCREENSHOTS.mkdir(exist_ok=True)
    wrong = await violations(page)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png", animations="disabled")
    await page.set_viewport_size(PHONE)
    await page.screenshot(path=SCREENSHOTS / f"{name}-phone.png", animations="disabled")
    if await page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
        wrong.append("wider than a phone")
    await page.set_viewport_size(DESK)
    await page.emulate_media(color_scheme="dark")
    wrong += await violations(page, ("color-contrast",))
    await page.screenshot(path=SCREENSHOTS / f"{name}-dark.png", animations="disabled")
    await page.emulate_media(color_scheme="light")
    return wrong
