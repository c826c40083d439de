"""The table in one file of React, bundled as its README says and looked at in a real browser."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.chromium import needs_chromium, opened_browser
from tests.examples.conftest import TENANT, Shop
from tests.examples.programs import needed, node_copy, run

pytestmark = needs_chromium


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_said: object) -> None:
        pass


@contextmanager
def page_of(folder: Path) -> Iterator[str]:
    """A folder's files over HTTP, as `npm start` serves them."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


async def test_the_table_shows_grants_as_they_are_made_and_end(shop: Shop, tmp_path: Path) -> None:
    folder = node_copy("react-minimal", tmp_path, package="esbuild")
    built = await run(needed("npm"), "run", "build", "--prefix", str(folder), settings={})
    assert built.code == 0, built.err
    world, complaints = shop.world, []
    first = await world.create_grant(grantTenantId=TENANT, slots=2)
    with page_of(folder) as address:
        async with opened_browser() as browser:
            page = await browser.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            status, rows = page.get_by_role("status"), page.locator("tbody tr")
            await sign_in(page, address, shop, secret="emk_of_nobody")
            await expect(status).to_have_text("this key is not accepted")
            await sign_in(page, address, shop, secret=world.secrets[TENANT])
            await expect(status).to_have_text("live")
            await expect(rows).to_have_count(1)
            await expect(rows.first).to_contain_text(first["id"])
            second = await world.create_grant(grantTenantId=TENANT, slots=3)
            await expect(rows).to_have_count(2)
            new = rows.filter(has_text=second["id"])
            await expect(new).to_contain_text("active3")
            ending = {"tenantId": "root", "accountId": world.account_id, "grantId": second["id"]}
            assert (await world.mutate("endGrant", ending))["__typename"] == "Grant"
            await expect(new).to_contain_text("ended")
    assert complaints == []


async def sign_in(page: Page, address: str, shop: Shop, *, secret: str) -> None:
    await page.goto(address)
    await page.fill("input[name=url]", f"{shop.address.replace('http', 'ws')}/graphql")
    await page.fill("input[name=apiKey]", secret)
    await page.click("button")
