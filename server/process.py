"""From settings to a reachable, migrated database, and a server on it that stops without losing anybody's work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette

from server.settings import Settings
from storage.database import Connection, connect
from storage.migrate import migrate
from workers.garbage import spare_what_stays

if TYPE_CHECKING:
    from storage.embedded import EmbeddedPostgres
    from workers.runtime import Runtime

log = logging.getLogger("earmark.server")

GRACE_S: Final = 10
"""How long a stopping server lets requests finish; streams are ended right away, with a cursor to resume."""
STREAMS_END_S: Final = 2.0
"""How long it waits for subscribers to be told so, before their sockets are closed."""
LAST_FRAME_S: Final = 0.1
"""A stream that has ended has not yet been written to its socket."""
PING_S: Final = 20.0
"""Heartbeat of WebSockets: a peer that is gone is noticed within two of them."""
WATCH_S: Final = 1.0
"""How often the embedded PostgreSQL is looked after: requests wait for a connection about five times as long."""
POSTGRES_LEAST: Final = 150_000
"""15.0: unique keys in which nulls are equal came with it."""
BACKLOG: Final = 2_048

STOPPING: Final = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals that mean: finish. The last one comes when a terminal is closed."""
_ALWAYS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


class StrangePackage(Exception):  # noqa: N818 - the message says it
    """Another distribution has put its module in the place of ours."""


class OldPostgres(Exception):  # noqa: N818 - the message says it
    """The database's server is of a version that lacks what the migrations need."""


class OutOfReach(Exception):  # noqa: N818 - the message says it
    """The database that the settings name cannot be connected to."""


class CannotListen(Exception):  # noqa: N818 - the message says it
    """The address to listen on is taken or not ours."""


def check_packages() -> None:
    """`schema` is also the name of a package on the public index: make sure that the one imported is ours."""
    import schema  # noqa: PLC0415 - it is this very import that is checked

    ours = Path(__file__).parent.parent / "schema" / "__init__.py"
    found = Path(schema.__file__ or "nowhere")
    if found.resolve() != ours.resolve():
        raise StrangePackage(
            f"the module 'schema' comes from {found}, not from Earmark: another package of that name is installed in "
            "this environment. Give Earmark a virtual environment of its own (make setup)."
        )


# -- the database ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reachable:
    """The address of the database, and the embedded server behind it, if it is ours to look after."""

    url: str
    embedded: EmbeddedPostgres | None = None

    async def watch(self) -> None:
        """Until cancelled: an embedded server that died is started again. Its data is as safe as a disk keeps it."""
        while self.embedded is not None:
            await asyncio.sleep(WATCH_S)
            await asyncio.to_thread(_revive, self.embedded)


def _revive(embedded: EmbeddedPostgres) -> None:
    if embedded.pid is None:
        log.warning("the embedded PostgreSQL has died and is started again")
        embedded.start()
        log.warning("the embedded PostgreSQL is back")


@contextmanager
def kept_database(settings: Settings) -> Iterator[Reachable]:
    """The database: yours, or the embedded one, which runs at least as long as the context. Raises `OutOfReach`."""
    if settings.database_url is not None:
        asyncio.run(_reach(settings))
        yield Reachable(settings.database_url)
        return
    from storage.embedded import EmbeddedPostgres  # noqa: PLC0415 - who brings a server needs nothing of it

    home = embedded_home(settings)
    home.parent.mkdir(parents=True, exist_ok=True)
    server = EmbeddedPostgres(home, bin_dir=settings.postgres_bin)
    server.start()
    try:
        yield Reachable(server.dsn, server)
    finally:
        server.stop()


def embedded_home(settings: Settings) -> Path:
    """Where the embedded server keeps what it has, once there is one."""
    return settings.data_dir.expanduser() / "postgres"


def missing_home(settings: Settings) -> Path | None:
    """Where an embedded server would be made, if there is no database yet of any kind."""
    home = embedded_home(settings)
    return None if settings.database_url is not None or home.exists() else home


async def _reach(settings: Settings) -> None:
    """So that whoever mistyped the address is told which setting to look at. Raises `OutOfReach`."""
    try:
        connection = await connect(settings.database_url or "")
    except Exception as error:
        place, reason = settings.shown()["EARMARK_DATABASE_URL"], str(error) or type(error).__name__
        raise OutOfReach(f"cannot connect to the database {place} (EARMARK_DATABASE_URL): {reason}") from error
    await connection.close()


@contextmanager
def reachable_database(settings: Settings) -> Iterator[str]:
    """The address of the database, which is there at least as long as the context."""
    with kept_database(settings) as kept:
        yield kept.url


@contextmanager
def migrated_database(settings: Settings) -> Iterator[str]:
    """The same, brought up to date."""
    with reachable_database(settings) as url:
        bring_up_to_date(url)
        yield url


def bring_up_to_date(url: str) -> list[str]:
    """The names of the migrations that were applied. Waits for another process that is at it. Raises `OldPostgres`."""
    names = asyncio.run(_migrate(url))
    for name in names:
        log.info("migrated", extra={"migration": name})
    return names


async def _migrate(url: str) -> list[str]:
    connection = await connect(url)
    try:
        check_version(await version_of(connection))
    finally:
        await connection.close()
    return await migrate(url)


async def version_of(connection: Connection) -> int:
    """As PostgreSQL counts: 150_004 is 15.4."""
    return int(await connection.fetchval("show server_version_num"))


def check_version(number: int) -> None:
    """Raises `OldPostgres`."""
    if number < POSTGRES_LEAST:
        raise OldPostgres(f"PostgreSQL {POSTGRES_LEAST // 10_000} or later is needed, this is {number // 10_000}")


# -- signals and sockets -----------------------------------------------------------------------------------------------


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside, a signal that asks to finish raises KeyboardInterrupt as Ctrl-C does, so that nothing is left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, [number for number in STOPPING if number is not signal.SIGINT]):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """A hang-up that is ignored stays so: that is what nohup does. Only the main thread can do this at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN or number in _ALWAYS]
    before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def listening_socket(settings: Settings) -> socket.socket:
    """Bound before anything is started, so that a taken port is known at once. Raises `CannotListen`."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A name such as localhost has both: most clients try the older one, and every one can.
        family, kind, _, _, address = min(found, key=lambda entry: entry[0] is not socket.AF_INET)
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        hint = "; choose another one with --port or EARMARK_PORT" if port else ""
        raise CannotListen(f"cannot listen on {host}, port {port}: {error.strerror}{hint}") from error
    return listener


class Server(uvicorn.Server):
    """uvicorn, with three differences. The node lives around it, so that what fails there is raised as it is. A signal
    ends it with an ordinary return. Streams are ended before connections: one that never ends would hold the stop."""

    def __init__(self, app: Starlette, settings: Settings, *, started: Callable[[str], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http="httptools",
                ws="websockets-sansio",
                loop="auto" if sys.platform == "win32" else "uvloop",
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE_S,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                ws_max_size=4 * settings.graphql_body_max,  # bytes of so many characters, at the most
                # Compression costs memory for every subscriber, and hides that one does not read.
                ws_per_message_deflate=False,
                server_header=False,
                date_header=True,
            )
        )
        self._app = app
        self._settings = settings
        self._started_callback = started

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Until a signal. Raises what keeps the node from starting. `sockets`: bound already, see `listening_socket`."""
        if sockets is None:
            with listening_socket(self._settings) as listener:
                super().run([listener])
        else:
            super().run(sockets)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        async with self._app.router.lifespan_context(self._app):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            spare_what_stays()
            port = self.servers[0].sockets[0].getsockname()[1]
            host = self.config.host if ":" not in self.config.host else f"[{self.config.host}]"
            self._started_callback(f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping")
        for server in self.servers:
            server.close()
        await _end_streams(self._app.state.runtime)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's: the process does not die of the signal afterwards, it has things to put away."""
        with _handled(self.handle_exit, STOPPING):
            yield


async def _end_streams(runtime: Runtime) -> None:
    """Every subscriber gets its cursor while its connection still stands."""
    if not _streams(runtime):
        return
    runtime.end_streams()
    until = time.monotonic() + STREAMS_END_S
    while _streams(runtime) and time.monotonic() < until:  # noqa: ASYNC110 - at most two seconds in a node's life
        await asyncio.sleep(0.01)
    await asyncio.sleep(LAST_FRAME_S)


def _streams(runtime: Runtime) -> int:
    return runtime.hub.open_count + runtime.board.count
