#!/usr/bin/env python3
"""Watch what happens to a tenant's grants, and miss nothing: not while the network is away, not while the server restarts.

    pip install "gql[websockets]"
    EARMARK_KEY=emk_... python watch.py ws://127.0.0.1:7878/graphql

Each event has a cursor. It is written to a file before the next event is asked for, so the next start goes on right after it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from gql import Client, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport

WATCH = gql(Path(__file__).with_name("watch.graphql").read_text())
BOOKMARK = Path(os.environ.get("EARMARK_BOOKMARK", "watch.cursor"))
PAUSE_LEAST_S, PAUSE_MOST_S = 0.25, 10.0


async def watch(url: str, key: str) -> None:
    """Go on for ever: after each interruption from the bookmark, waiting longer each time nothing comes of it."""
    pause = PAUSE_LEAST_S
    while True:
        try:
            async for event in events(url, key):
                print(event["seq"], event["type"], event["grantId"], event["slots"], flush=True)
                BOOKMARK.write_text(event["cursor"])
                pause = PAUSE_LEAST_S
        except TransportQueryError as error:
            ends = (error.errors or [{}])[0].get("extensions", {})
            if ends.get("code") in ("UNAUTHENTICATED", "ACCESS_DENIED", "INVALID_INPUT"):
                sys.exit(f"refused: {error}")
            if ends.get("cursor"):  # the server says where to go on, also when the bookmark has expired
                BOOKMARK.write_text(ends["cursor"])
            print(f"interrupted: {ends.get('code', error)}", file=sys.stderr, flush=True)
        except Exception as error:  # the network, or a server that is restarting
            print(f"away: {type(error).__name__}", file=sys.stderr, flush=True)
        await asyncio.sleep(pause)
        pause = min(PAUSE_MOST_S, pause * 2)


async def events(url: str, key: str):
    """The events after the bookmark, then each as it happens."""
    transport = WebsocketsTransport(url=url, init_payload={"apiKey": key}, subprotocols=["graphql-transport-ws"])
    after = BOOKMARK.read_text() if BOOKMARK.exists() else None
    async with Client(transport=transport) as session:
        WATCH.variable_values = {"after": after}
        async for result in session.subscribe(WATCH):
            yield result["grantEvents"]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.environ.get("EARMARK_KEY"):
        sys.exit(__doc__)
    try:
        asyncio.run(watch(sys.argv[1], os.environ["EARMARK_KEY"]))
    except KeyboardInterrupt:
        pass
