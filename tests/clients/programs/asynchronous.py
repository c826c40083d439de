"""The asynchronous client: many lifecycles at once."""

import asyncio

from runcycles import AsyncCyclesClient, CyclesConfig
from saying import key, request, say, tokens

LIFECYCLES = 20


async def live(client, tenant, number):
    created = await client.create_reservation(request(tenant, 100))
    rid = created.get_body_attribute("reservation_id")
    if number % 2:
        return (await client.release_reservation(rid, {"idempotency_key": key()})).status
    return (await client.commit_reservation(rid, {"idempotency_key": key(), "actual": tokens(number)})).status


async def main():
    config = CyclesConfig.from_env()
    async with AsyncCyclesClient(config) as client:
        statuses = await asyncio.gather(*(live(client, config.tenant, number) for number in range(LIFECYCLES)))
        debit = await client.create_event(request(config.tenant, 5, what="actual"))
        say(statuses=sorted(set(statuses)), debit=debit.status)


asyncio.run(main())
