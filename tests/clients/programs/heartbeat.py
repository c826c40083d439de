"""A stream that goes on for longer than its lease: the client extends it by itself, and the program watches."""

import sys
import threading

from runcycles import Action, Amount, CyclesClient, CyclesConfig, Unit
from saying import say

TTL_MS = int(sys.argv[1])
TRIES, PAUSE_S = 2_000, 0.01

config = CyclesConfig.from_env()
with CyclesClient(config) as client, CyclesClient(config) as watcher:
    given = {"action": Action(kind="llm.completion", name="model"), "estimate": Amount(unit=Unit.TOKENS, amount=100)}
    with client.stream_reservation(ttl_ms=TTL_MS, **given) as reservation:
        pause = threading.Event()
        for _ in range(TRIES):
            body = watcher.get_reservation(reservation.reservation_id).body
            if body["expires_at_ms"] > body["created_at_ms"] + TTL_MS:
                break
            pause.wait(PAUSE_S)
        reservation.usage.set_actual_cost(40)
    say(
        extended_by=body["expires_at_ms"] - body["created_at_ms"] - TTL_MS,
        last=watcher.get_reservation(reservation.reservation_id).body,
    )
