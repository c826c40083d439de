"""Functions under the decorator: what they cost is held before and settled after."""

import asyncio

from runcycles import (
    AsyncCyclesClient,
    BudgetExceededError,
    CyclesClient,
    CyclesConfig,
    CyclesProtocolError,
    cycles,
    get_cycles_context,
)
from saying import say

config = CyclesConfig.from_env()
client, later = CyclesClient(config), AsyncCyclesClient(config)
GIVEN = {"unit": "TOKENS", "action_kind": "tool.search", "action_name": "search"}


@cycles(1_000, actual=len, client=client, **GIVEN)
def search(text):
    return text * 70


@cycles(1_000, actual=len, client=later, **GIVEN)
async def search_later(text):
    await asyncio.sleep(0)
    return text * 30


@cycles(lambda amount: amount, client=client, **GIVEN)
def spend(amount):
    return get_cycles_context().reservation_id


@cycles(1_000, client=client, **GIVEN)
def fail():
    raise RuntimeError("the tool broke")


@cycles(50, client=client, dry_run=True, **GIVEN)
def rehearse():
    raise AssertionError("a dry run does not run")


@cycles(100, actual=150, client=client, overage_policy="REJECT", **GIVEN)
def overspend():
    return "done"


def error_of(function, *given):
    try:
        function(*given)
    except CyclesProtocolError as error:
        return [type(error).__name__, error.error_code, error.status]
    except RuntimeError as error:
        return [type(error).__name__, str(error)]
    return None


async def both():
    text = await search_later("x")
    await later.aclose()
    return len(text)


say(
    found=len(search("ab")),
    later=asyncio.run(both()),
    held=spend(5),
    too_much=error_of(spend, 1_000_000),
    is_exceeded=issubclass(BudgetExceededError, CyclesProtocolError),
    broken=error_of(fail),
    rehearsed=str(rehearse().decision),
    overspent=error_of(overspend),
)
client.close()
