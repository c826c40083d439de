"""Commands that cannot be carried out, whatever is tried: the database refuses them as no database of ours should."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from storage.database import connect
from tests.chaos.clients import free_debit
from tests.chaos.scene import Scene
from tests.faults.cycles_load import Call
from tests.faults.load import RESERVATIONS, now_ms
from tests.simulation.histories import HOUR_MS
from tests.simulation.world_plan import ACCOUNT_MAIN, ROOT

POISON: Final = """
create function chaos_poison() returns trigger language plpgsql as
    $$ begin raise exception 'poisoned: %', new.idempotency_key; end $$;
create trigger chaos_poison before insert on budget_answer for each row when (new.idempotency_key like 'poison-%')
    execute function chaos_poison();
create trigger chaos_poison before insert on answer for each row when (new.idempotency_key like 'poison-%')
    execute function chaos_poison();
"""
ANTIDOTE: Final = """
drop trigger chaos_poison on budget_answer;
drop trigger chaos_poison on answer;
drop function chaos_poison();
"""
KEPT: Final = """
select (select count(*) from answer where idempotency_key like 'poison-%')
    + (select count(*) from budget_answer where idempotency_key like 'poison-%')
"""
GRANT: Final = (
    "mutation ($input: CreateGrantInput!) { made: createGrant(input: $input) { __typename ... on Grant { id } } }"
)
COUNT: Final = 12


async def poison(scene: Scene) -> None:
    """Each fails alone, as a fault of ours that says nothing of itself; whoever is in its batch notices nothing. Without
    the poison it can be carried out, under its key."""
    connection = await connect(scene.stage.url)
    try:
        async with scene.loaded():
            await scene.more_answers()
            await connection.execute(POISON)
            failed = await _all(scene, lambda asked: _fails(scene, asked))
            await scene.more_answers()
            assert await connection.fetchval(KEPT) == 0
            await connection.execute(ANTIDOTE)
            await _all(scene, lambda asked: _works(scene, asked))
            scene.say(
                f"poisoned {failed[Call]} debits and {failed[dict]} grants; without the poison each was carried out"
            )
            await scene.more_answers()
    finally:
        await connection.close()


Asked = Call | dict[str, Any]


async def _all(scene: Scene, do: Callable[[Asked], Coroutine[Any, Any, None]]) -> Counter[type]:
    """Debits and grants, the same ones every time, all at once."""
    starts_at = now_ms() + 500 * HOUR_MS
    asked: list[Asked] = [free_debit(f"poison-{number}") for number in range(COUNT)]
    asked += [_grant(f"poison-{number}", starts_at - starts_at % HOUR_MS + number * HOUR_MS) for number in range(COUNT)]
    await asyncio.gather(*map(do, asked))
    return Counter(map(type, asked))


def _grant(key: str, starts_at: int) -> dict[str, Any]:
    return {
        "tenantId": ROOT,
        "accountId": ACCOUNT_MAIN,
        "reservationId": RESERVATIONS[0].reservation_id,
        "grantTenantId": "A",
        "slots": 1,
        "startsAt": starts_at,
        "endsAt": starts_at + HOUR_MS,
        "idempotencyKey": key,
    }


async def _fails(scene: Scene, asked: Asked) -> None:
    if isinstance(asked, Call):
        response = await scene.stage.http.post(
            scene.stage.servers[0].address + asked.path,
            json=asked.body,
            headers=scene.stage.budgets_client.headers_of(asked),
        )
        assert (response.status_code, response.json()["error"]) == (500, "INTERNAL_ERROR")
    else:
        answer = await _post_grant(scene, asked)
        response_codes = [error["extensions"]["code"] for error in answer["errors"]]
        assert response_codes == ["INTERNAL"], answer
        assert "poison" not in str(answer)
        return
    assert "poison" not in response.text


async def _works(scene: Scene, asked: Asked) -> None:
    if isinstance(asked, Call):
        assert (await scene.stage.budgets.ask(asked)).status == 201
    else:
        made = (await _post_grant(scene, asked))["data"]["made"]
        assert made["__typename"] == "Grant", made
        scene.stage.capacity.besides.add(made["id"])


async def _post_grant(scene: Scene, given: dict[str, Any]) -> dict[str, Any]:
    response = await scene.stage.http.post(
        scene.stage.servers[0].address + "/graphql",
        json={"query": GRANT, "variables": {"input": given}},
        headers={"authorization": f"Bearer {scene.stage.root_key}"},
    )
    answer: dict[str, Any] = response.json()
    return answer
