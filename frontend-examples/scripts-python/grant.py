#!/usr/bin/env python3
"""Fulfil an order for slots exactly once, and say what to do about each way in which it can be refused.

    pip install -r requirements.txt
    EARMARK_KEY=emk_... python grant.py http://127.0.0.1:7878/graphql ORDER TENANT SLOTS HOURS

ORDER is your own number for it and becomes the idempotency key: run it again after a crash or a lost answer, and you get
the grant that the first run made. Exits with 0 when the slots are the tenant's, 1 when they are not, 2 when the server is away.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from gql import Client, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.httpx import HTTPXTransport

DOCUMENT = gql(Path(__file__).with_name("grant.graphql").read_text())
HOUR_MS = 3_600_000
ATTEMPTS = 5
COME_AGAIN = {"OVERLOADED", "UNAVAILABLE", "INTERNAL"}


def main(url: str, order: str, tenant: str, slots: str, hours: str) -> str:
    headers = {"Authorization": f"Bearer {os.environ['EARMARK_KEY']}"}
    with Client(transport=HTTPXTransport(url=url, headers=headers)) as session:
        shelf = ask(session, "Shelf")
        if not shelf["capacityReservations"]["nodes"]:
            sys.exit("nothing: no capacity reservation is ready")
        roomiest = max(shelf["capacityReservations"]["nodes"], key=lambda reservation: reservation["free"])
        starts_at = int(time.time() * 1000)
        wanted = {
            "tenantId": shelf["viewer"]["tenant"]["id"],
            "accountId": roomiest["accountId"],
            "reservationId": roomiest["reservationId"],
            "grantTenantId": tenant,
            "slots": int(slots),
            "startsAt": starts_at,
            "endsAt": starts_at + int(hours) * HOUR_MS,
            "idempotencyKey": order,
        }
        return fulfil(session, wanted)


def fulfil(session, wanted: dict) -> str:
    """The grant in words. Whatever else it may be ends the program."""
    match ask(session, "Grant", input=wanted)["createGrant"]:
        case {"__typename": "Grant"} as grant:
            return f"granted: {told(grant)}"
        case {"__typename": "Conflict", "reason": "idempotency-key-reused", "grantId": str(grant_id)}:
            # A first run got through, with a term that began earlier: the order is fulfilled, nothing is left to do.
            return f"fulfilled before: {told(ask(session, 'Granted', id=grant_id)['grant'])}"
        case {"__typename": "CapacityUnavailable", "earliestFit": {"startsAt": starts_at, "endsAt": ends_at}}:
            sys.exit(f"full: the same slots fit from {moment(starts_at)} until {moment(ends_at)}; order them for then")
        case {"__typename": "CapacityUnavailable", "total": total}:
            sys.exit(f"full: {wanted['slots']} slots never fit, the reservation has {total}; order fewer")
        case {"__typename": "InvalidInput", "field": field, "reason": reason, "message": message}:
            sys.exit(f"mistaken: {field} ({reason}): {message}")
        case {"__typename": "NotFound", "message": message}:
            sys.exit(f"unknown: {message}; is the tenant made, and the pool offered to it?")
        case {"__typename": "InvalidState", "currentState": state, "message": message}:
            sys.exit(f"not now: {message} ({state or 'no state'}); ask again when the provider shows it as ready")
        case {"__typename": "AccessDenied", "message": message}:
            sys.exit(f"refused: {message}; grants are made with the platform's key")
        case {"__typename": kind, "message": message}:  # a conflict of another kind, or one that is newer than this script
            sys.exit(f"{kind}: {message}")


def ask(session, operation: str, **variables) -> dict:
    """The data of one operation of the document. What failed on the way is asked again: the key makes it harmless."""
    DOCUMENT.operation_name, DOCUMENT.variable_values = operation, variables
    for attempt in range(ATTEMPTS):
        try:
            return session.execute(DOCUMENT)
        except TransportQueryError as error:
            codes = {e.get("extensions", {}).get("code") for e in error.errors or []}
            if not codes & COME_AGAIN:
                sys.exit(f"refused: {error.errors[0]['message'] if error.errors else error}")
        except Exception as error:  # the network, or a server that is restarting
            print(f"away: {type(error).__name__}", file=sys.stderr)
        time.sleep(0.2 * 2**attempt)
    print("the server is away; run this again with the same order", file=sys.stderr)
    sys.exit(2)


def told(grant: dict) -> str:
    term = f"{moment(grant['startsAt'])} until {moment(grant['endsAt'])}"
    return f"{grant['id']} {grant['state'].lower()}, {grant['slots']} slots from {term}"


def moment(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, timezone.utc).isoformat(timespec="minutes")


if __name__ == "__main__":
    if len(sys.argv) != 6 or not os.environ.get("EARMARK_KEY"):
        sys.exit(__doc__)
    print(main(*sys.argv[1:]))
