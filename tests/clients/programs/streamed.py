"""Streams: held when they begin, charged by what they used, given back when they break."""

import asyncio

from runcycles import Action, Amount, AsyncCyclesClient, CyclesClient, CyclesConfig, Unit
from saying import say

config = CyclesConfig.from_env()
GIVEN = {"action": Action(kind="llm.completion", name="model"), "estimate": Amount(unit=Unit.TOKENS, amount=1_000)}


def cost(usage):
    return usage.tokens_input + 2 * usage.tokens_output


def stream(client):
    with client.stream_reservation(cost_fn=cost, **GIVEN) as reservation:
        for _ in range(3):
            reservation.usage.add_output_tokens(100)
        reservation.usage.add_input_tokens(50)
        return reservation.reservation_id


def broken_stream(client):
    try:
        with client.stream_reservation(cost_fn=cost, **GIVEN) as reservation:
            name = reservation.reservation_id
            raise RuntimeError("the line broke")
    except RuntimeError:
        return name


async def later():
    async with AsyncCyclesClient(config) as client, client.stream_reservation(cost_fn=cost, **GIVEN) as reservation:
        reservation.usage.add_output_tokens(10)
        return reservation.reservation_id


with CyclesClient(config) as client:
    say(streamed=stream(client), broken=broken_stream(client), later=asyncio.run(later()))
