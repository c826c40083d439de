"""Where deployments made for the reference servers look whether this one is up (11)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from server.rest.cycles.exchange import Answer, Exchange, Reply

log = logging.getLogger("earmark.cycles")

READY_WITHIN_S: Final = 2.0
"""A database that takes longer to say one is not fit for traffic."""


async def healthy(_exchange: Exchange) -> Answer:
    """The process lives."""
    return Reply({"status": "UP"})


async def ready(exchange: Exchange) -> Answer:
    """The database answers."""
    try:
        async with asyncio.timeout(READY_WITHIN_S), exchange.runtime.database.acquire() as connection:
            await connection.fetchval("select 1")
    except Exception as error:  # noqa: BLE001 - whatever it is, this node is not ready
        log.warning("the database does not answer", extra={"error": repr(error)})
        return Reply({"status": "DOWN"}, 503)
    return Reply({"status": "UP"})
