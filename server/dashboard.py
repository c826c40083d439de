"""The built dashboard under /dashboard: files that a browser may keep, one page for every address below, and a policy.

Node builds it (`make dashboard`), and packages ship it. Where it was not built, the address says how, and nothing else
misses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

HOME: Final = Path(__file__).parent / "static" / "dashboard"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only files of this server run, and they speak to nobody else: the key of whoever signs in goes nowhere."""
NOT_BUILT: Final = (
    "The dashboard is not built here. With Node 20 or newer: make dashboard. Everything else of this server works.\n"
)
_ALWAYS: Final = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_KEPT: Final = "public, max-age=31536000, immutable"
"""For what has a checksum of its content in its name."""
_ASKED_AGAIN: Final = "no-cache"


async def _dashboard(request: Request) -> Response:
    path: str = request.path_params.get("path", "")
    page = HOME / "index.html"
    if not page.is_file():
        return PlainTextResponse(NOT_BUILT, status_code=404)
    asked = _file_of(path)
    if asked is None and path.startswith("assets/"):
        return PlainTextResponse("no such file: the dashboard was built anew, load the page again\n", status_code=404)
    kept = _KEPT if asked is not None and path.startswith("assets/") else _ASKED_AGAIN
    return FileResponse(asked or page, headers={**_ALWAYS, "cache-control": kept})


def _file_of(path: str) -> Path | None:
    """The built file of that name; None for an address inside of the dashboard, and for whatever lies outside."""
    file = (HOME / path).resolve()
    return file if file.is_relative_to(HOME.resolve()) and file.is_file() else None


ROUTES: Final = [Route("/dashboard", _dashboard), Route("/dashboard/{path:path}", _dashboard)]
