"""Connections: one pool for reads and rare writes, and connections of their own for whoever needs one to itself.

Nothing here knows a table. A pooled connection carries no session state from one user to the next (the pool sends no
RESET), so sessions are configured once, by server settings, and everything else is `SET LOCAL`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Final, TypeAlias

import asyncpg
import msgspec

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PooledConnection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PooledConnection"
Row: TypeAlias = asyncpg.Record

POOL_MAX: Final = 10
"""Reads beside the writers' own connections: more would only queue inside PostgreSQL on a few cores."""
POOL_WAIT_S: Final = 5.0
"""How long a request waits for a pooled connection before it is told to come back."""
LOCK_WAIT_MS: Final = 5_000
"""D42: a lock that cannot be had in this time makes the command retryable, with its key."""
STATEMENT_MAX_MS: Final = 60_000
"""No statement of ours takes longer unless something is wrong."""

ANSWER_WAIT_S: Final = 15.0
"""How long a statement waits for a server that says nothing at all (a path that is dead while its sockets are not): beyond
it the connection is given up. It is longer than the wait for a lock, and than the largest books take to be read."""
VANISHED_S: Final = 20
"""How long the server keeps the locks of a transaction whose client says nothing more."""

SESSION: Final = {
    "application_name": "earmark",
    "lock_timeout": str(LOCK_WAIT_MS),
    "statement_timeout": str(STATEMENT_MAX_MS),
    "idle_in_transaction_session_timeout": str(VANISHED_S * 1_000),
    # The same for a client whose machine is gone, between transactions and in the middle of a statement.
    "tcp_keepalives_idle": str(VANISHED_S),
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
    "jit": "off",
    # Plans must not depend on when the statistics of a young table were last taken.
    "plan_cache_mode": "auto",
}

_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


class Trouble(StrEnum):
    """What a failed statement means for the caller."""

    TRANSIENT = "transient"
    """Cut off, restarted, deadlocked or overtaken: whether it took effect is in doubt; ask again by key."""
    BUSY = "busy"
    """A lock or a connection could not be had in time; nothing was done."""
    DUPLICATE = "duplicate"
    """A unique key was taken: somebody was faster."""
    BUG = "bug"


class Unavailable(Exception):  # noqa: N818 - a state of the world, not a mistake
    """The database cannot answer now. Asking again later, with the same idempotency key, is safe."""


_CLIENT_ERRORS: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_TRANSIENT_CLASSES: Final = ("08", "57", "53")
_TRANSIENT_CODES: Final = frozenset({"40001", "40P01"})


def trouble_of(error: BaseException) -> Trouble:
    """Classify by SQLSTATE. A distributed PostgreSQL reports remote constraint errors as XX000 with their text."""
    if isinstance(error, Unavailable):
        return Trouble.TRANSIENT
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == "55P03":
            return Trouble.BUSY
        if state == "23505" or (state == "XX000" and str(error).startswith("duplicate key value")):
            return Trouble.DUPLICATE
        transient = state in _TRANSIENT_CODES or state.startswith(_TRANSIENT_CLASSES)
        return Trouble.TRANSIENT if transient else Trouble.BUG
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return Trouble.BUG  # an argument that does not fit its type: it never will
    # InternalClientError: the server cut the connection while asyncpg was sending on it.
    is_cut_off = isinstance(error, OSError | EOFError | asyncpg.InterfaceError | asyncpg.InternalClientError)
    return Trouble.TRANSIENT if is_cut_off else Trouble.BUG


async def _prepare_session(connection: AnyConnection) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind,
            schema="pg_catalog",
            encoder=lambda value: _encode_json(value).decode(),
            decoder=_decode_json,
        )


async def _keep_session(_connection: AnyConnection) -> None:
    """In place of the pool's RESET, which costs a round trip at every release."""


async def connect(url: str, *, answer_within_s: float | None = None) -> Connection:
    """A connection of its own; the caller closes it. Each of its statements may take so long, or any time it needs."""
    connection: Connection = await asyncpg.connect(
        url, server_settings=SESSION, timeout=10, command_timeout=answer_within_s
    )
    await _prepare_session(connection)
    return connection


class Database:
    """The pool, and the address for more connections."""

    def __init__(self, url: str, pool: asyncpg.Pool[asyncpg.Record], *, answer_within_s: float = ANSWER_WAIT_S) -> None:
        self.url = url
        self._pool = pool
        self.answer_within_s = answer_within_s
        """How long a statement may be without an answer before its connection is given up."""

    @classmethod
    async def open(cls, url: str, *, pool_max: int = POOL_MAX, answer_within_s: float = ANSWER_WAIT_S) -> Database:
        """Raises OSError or asyncpg's errors when the server cannot be reached."""
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=pool_max,
            server_settings=SESSION,
            init=_prepare_session,
            reset=_keep_session,
            timeout=10,
            command_timeout=answer_within_s,
        )
        return cls(url, pool, answer_within_s=answer_within_s)

    async def close(self) -> None:
        """Let statements under way finish for a moment, then cut the rest."""
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def connect(self) -> Connection:
        """One of its own, for a lane or a listener."""
        return await connect(self.url, answer_within_s=self.answer_within_s)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[PooledConnection]:
        """A pooled connection. Raises `Unavailable` when none can be had in time, or when it fails while it is used.

        A lock that could not be had (D42) and a connection that broke look the same to whoever asked: come back, with
        the idempotency key.
        """
        try:
            connection = await self._pool.acquire(timeout=POOL_WAIT_S)
        except (OSError, *_CLIENT_ERRORS) as error:
            raise Unavailable("no database connection could be had") from error
        try:
            yield connection
        except (ConnectionError, TimeoutError, *_CLIENT_ERRORS) as error:
            if isinstance(error, asyncpg.InternalClientError):
                connection.terminate()  # it may wait for an answer that never comes: nobody shall get it again
            if trouble_of(error) in (Trouble.TRANSIENT, Trouble.BUSY):
                raise Unavailable("the database did not answer; ask again with the same idempotency key") from error
            raise
        finally:
            with suppress(asyncpg.InternalClientError):  # lost on its way back: the pool opens another one
                await asyncio.shield(self._pool.release(connection))

    @asynccontextmanager
    async def transaction(self, *, isolation: str | None = None) -> AsyncIterator[PooledConnection]:
        """A transaction on a pooled connection; given back however the caller is cancelled."""
        async with self.acquire() as connection, connection.transaction(isolation=isolation):  # type: ignore[arg-type]
            try:
                yield connection
            except TimeoutError:  # nobody is there to hear of a rollback: do not wait once more for that
                connection.terminate()
                raise


_CLOCK: Final = "select floor(extract(epoch from clock_timestamp()) * 1000)::bigint"


async def read_clock(connection: AnyConnection) -> int:
    """The database's clock in epoch milliseconds (R3)."""
    now: int = await connection.fetchval(_CLOCK)
    return now


def affected(status: str) -> int:
    """How many rows a command touched, from its status line such as `UPDATE 3`."""
    return int(status.rpartition(" ")[2])
