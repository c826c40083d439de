"""What /dashboard answers with: files to keep, one page for every address below it, and a word where it is not built."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from server import dashboard


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "dashboard"
    (home / "assets").mkdir(parents=True)
    (home / "index.html").write_text("<!doctype html>")
    (home / "assets" / "index-1a2b.js").write_text("0")
    (tmp_path / "secret").write_text("not to be shown")
    monkeypatch.setattr(dashboard, "HOME", home)
    return home


async def get(path: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=Starlette(routes=dashboard.ROUTES))
    async with httpx2.AsyncClient(transport=transport, base_url="http://earmark.test") as client:
        return await client.get(path)


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/", "/dashboard/grants/rgrant_1", "/dashboard/a.b"])
@pytest.mark.usefixtures("built")
async def test_every_address_below_it_is_the_page_under_the_policy(path: str) -> None:
    answer = await get(path)
    assert (answer.status_code, answer.text) == (200, "<!doctype html>")
    assert answer.headers["content-security-policy"] == dashboard.POLICY
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.usefixtures("built")
async def test_files_with_a_checksum_in_their_name_are_kept_and_missing_ones_are_no_page() -> None:
    found, missing = await get("/dashboard/assets/index-1a2b.js"), await get("/dashboard/assets/index-0000.js")
    assert (found.text, found.headers["cache-control"]) == ("0", "public, max-age=31536000, immutable")
    assert missing.status_code == 404


@pytest.mark.parametrize(
    "path", ["/dashboard/..%2fsecret", "/dashboard/assets/..%2f..%2fsecret", "/dashboard/%2fetc/passwd"]
)
@pytest.mark.usefixtures("built")
async def test_nothing_outside_is_served(path: str) -> None:
    answer = await get(path)
    assert "not to be shown" not in answer.text
    assert answer.text in ("<!doctype html>", "no such file: the dashboard was built anew, load the page again\n")


async def test_where_it_is_not_built_the_address_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "HOME", tmp_path)
    answer = await get("/dashboard/capacity")
    assert (answer.status_code, answer.text) == (404, dashboard.NOT_BUILT)
