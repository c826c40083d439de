"""A short way to the routes that answer on plain ASGI: past layers that do nothing for their requests.

An ordinary request passes the layer for pages of other origins, the one that turns exceptions of routes into answers, and
every route before its own. What comes from no page, and is for a route that says by itself what went wrong, needs none of
it. Whatever is not certain goes the long way, where all of it is decided.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ORIGIN: Final = b"origin"
_WORDS: Final = 2
"""Of a path that routes with parameters are looked up by: `/v1/reservations`."""


class Shortcut:
    """A layer right inside the outermost one. `routes`: all of the application's, in its order."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._exact, self._by_words = _tables([route for route in routes if isinstance(route, Route)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._find(scope) if scope["type"] == "http" and not scope.get("root_path") else None
        if app is None:
            await self._app(scope, receive, send)
        else:
            await app(scope, receive, _varied(send))

    def _find(self, scope: Scope) -> ASGIApp | None:
        """The application of the first route that takes the request, if it is one that needs no layers."""
        for name, _ in scope["headers"]:
            if name == _ORIGIN:
                return None
        path = scope["path"]
        if (route := self._exact.get(path)) is not None:
            if route.methods and scope["method"] not in route.methods:
                return None
            return _taken(scope, route, {"endpoint": route.endpoint, "path_params": {}})
        for route in self._by_words.get(_words_of(path), ()):
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                return _taken(scope, route, child_scope)
        return None


def _varied(send: Send) -> Send:
    """As the layer for other origins says of every answer, since it would depend on one."""

    async def tell(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = [value.decode("latin-1") for name, value in message["headers"] if name == b"vary"]
            others = [header for header in message["headers"] if header[0] != b"vary"] if named else message["headers"]
            message["headers"] = [*others, (b"vary", ", ".join((*named, "Origin")).encode("latin-1"))]
        await send(message)

    return tell


def _taken(scope: Scope, route: Route, child_scope: Scope) -> ASGIApp | None:
    """The route's application, if it is one as it stands and not a function of a request."""
    if inspect.isroutine(route.endpoint):
        return None
    scope["route"] = route
    scope.update(child_scope)
    return route.app


def _tables(routes: Iterable[Route]) -> tuple[Mapping[str, Route], Mapping[str, Sequence[Route]]]:
    """Routes that stand for one path and come first with it; and those with parameters, by their first words.

    From the first one on that has a parameter among those words, nothing is in them: it may match any path.
    """
    exact: dict[str, Route] = {}
    by_words: dict[str, list[Route]] = defaultdict(list)
    before: list[Route] = []
    for route in routes:
        words = _words_of(route.path)
        if "{" in words:
            break
        if route.param_convertors:
            by_words[words].append(route)
        elif not any(other.path_regex.match(route.path) for other in before):
            exact[route.path] = route
        before.append(route)
    return exact, by_words


def _words_of(path: str) -> str:
    return "/".join(path.split("/", _WORDS + 1)[: _WORDS + 1])
