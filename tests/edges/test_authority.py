"""Who may ask, and that nobody learns of anybody else's things (T21, T22, T30..T32, T34, R4, R60, R61, D46)."""

from __future__ import annotations

import json

from tests.edges.edge import Edge, Refused
from tests.edges.world import (
    DAY,
    ELSEWHERE,
    HOUR,
    NOBODYS_ACCOUNT,
    NOBODYS_GRANT,
    OTHER,
    ROOT,
    A,
    B,
    World,
    accepted,
    refused,
)

DENIED = Refused("ACCESS_DENIED")
STRANGER_KEY = "emk_000000000000_" + "0" * 40


async def test_without_a_valid_key_nothing_is_answered(world: World, edge: Edge) -> None:
    grant = await world.made(edge)
    short = "short"
    for secret in (None, STRANGER_KEY, short, other_than(world.secrets[A]), world.secrets[A] * 12):
        asked = {"tenantId": A, "grantId": grant["grantId"]}
        assert refused(await edge.get(asked, secret=secret)).code == "UNAUTHENTICATED"
        assert refused(await edge.create({"nonsense": 1}, secret=secret)).code == "UNAUTHENTICATED"


async def test_t22_only_a_member_of_root_with_the_permission_makes_grants(world: World, edge: Edge) -> None:
    for by, tenant_id in ((A, ROOT), (A, A), ("root-reader", ROOT), (ROOT, A), (ROOT, "nobody")):
        assert await world.create(edge, by=by, tenantId=tenant_id) == DENIED, (by, tenant_id)
    assert await world.count("capacity_grant") == 0


async def test_r4_a_stranger_cannot_probe_what_exists(world: World, edge: Edge) -> None:
    """Existing or not, on whatever account: the same answer, before any look-up."""
    grant = await world.made(edge, idempotencyKey="known")
    for changes in (
        {},
        {"accountId": NOBODYS_ACCOUNT},
        {"reservationId": "nowhere"},
        {"startsAt": 0},
        {"slots": 100_000},
        {"idempotencyKey": "known", "slots": 2},
    ):
        assert await world.create(edge, by=A, **changes) == DENIED, changes
    for grant_id in (grant["grantId"], NOBODYS_GRANT):
        assert await world.end(edge, grant_id, by=A) == DENIED
        assert await world.end(edge, grant_id, by=A, tenantId=A) == DENIED


async def test_t21_nobody_but_root_ends_a_grant(world: World, edge: Edge) -> None:
    grant = await world.made(edge)
    for by, tenant_id in ((A, ROOT), (A, A), (OTHER, OTHER), ("root-reader", ROOT), (ROOT, A)):
        assert await world.end(edge, grant["grantId"], by=by, tenantId=tenant_id) == DENIED, (by, tenant_id)
    assert accepted(await world.get(edge, grant["grantId"], by=A))["state"] == "active"


async def test_t31_own_grants_are_seen_and_others_do_not_exist(world: World, edge: Edge) -> None:
    grant_id = (await world.made(edge))["grantId"]
    assert accepted(await world.get(edge, grant_id, by=A))["grantId"] == grant_id
    assert await world.get(edge, grant_id, by=OTHER) == Refused("NOT_FOUND")
    assert await world.get(edge, NOBODYS_GRANT, by=OTHER) == Refused("NOT_FOUND")
    assert accepted(await world.get(edge, grant_id, by=ROOT))["grantId"] == grant_id
    assert accepted(await world.get(edge, grant_id, by="root-reader", tenant_id=ROOT))["grantId"] == grant_id
    for by, tenant_id in ((ROOT, A), (A, ROOT), (A, OTHER), ("tenant-a-blind", A)):
        assert await world.get(edge, grant_id, by=by, tenant_id=tenant_id) == DENIED, (by, tenant_id)


async def test_t32_t34_lists(world: World, edge: Edge) -> None:
    to_a = [(await world.made(edge))["grantId"] for _ in range(2)]
    to_b = (await world.made(edge, grantTenantId=OTHER))["grantId"]
    to_root = await _grant_to_root(world, edge)
    assert await world.listed(edge, by=A) == to_a[::-1]
    assert await world.listed(edge, by=OTHER) == [to_b]
    assert await world.listed(edge, by=ROOT) == [to_root], "without all, root sees what was granted to root"
    assert await world.listed(edge, by=ROOT, all=True) == [to_root, to_b, *to_a[::-1]]
    assert await world.listed(edge, by="root-reader", tenant_id=ROOT, all=True) == [to_root, to_b, *to_a[::-1]]
    for by, tenant_id in ((A, A), (ROOT, A), (A, ROOT)):
        assert await world.list_grants(edge, by=by, tenant_id=tenant_id, all=True) == DENIED, (by, tenant_id)
    for by, tenant_id in ((ROOT, A), (A, OTHER), (A, ROOT), ("tenant-a-blind", A)):
        assert await world.list_grants(edge, by=by, tenant_id=tenant_id) == DENIED, (by, tenant_id)
    assert await world.listed(edge, by=A, all=False) == to_a[::-1]


async def test_d46_account_and_reservation_are_shown_to_root_only(world: World, edge: Edge) -> None:
    made = await world.made(edge)
    seen_by_root = accepted(await world.get(edge, made["grantId"], by=ROOT))
    seen_by_a = accepted(await world.get(edge, made["grantId"], by=A))
    assert seen_by_root == made
    assert seen_by_root.items() - seen_by_a.items() == {
        ("accountId", world.account_id),
        ("reservationId", made["reservationId"]),
    }
    text = json.dumps(await world.list_grants(edge, by=A))
    assert world.account_id not in text
    assert made["reservationId"] not in text


async def test_r48_a_grant_of_another_account_is_as_good_as_none(world: World, edge: Edge) -> None:
    elsewhere = {"accountId": world.other_account_id, "reservationId": ELSEWHERE}
    grant = await world.made(edge, **elsewhere)
    assert await world.end(edge, grant["grantId"]) == Refused("NOT_FOUND")
    assert await world.end(edge, grant["grantId"], accountId=NOBODYS_ACCOUNT) == Refused("NOT_FOUND")
    assert await world.end(edge, NOBODYS_GRANT) == Refused("NOT_FOUND")
    assert accepted(await world.end(edge, grant["grantId"], accountId=world.other_account_id))["state"] == "ended"


async def test_a_deleted_tenants_grants_are_over_and_its_key_is_worth_nothing(world: World, edge: Edge) -> None:
    live, ahead = await world.made(edge), await world.made(edge, startsAt=B + HOUR, endsAt=B + DAY)
    world.clock.advance(HOUR // 2)
    deleted = await world.graphql.mutate(
        "deleteTenant", {"tenantId": A}, "... on Tenant { id deletedAt }", secret=world.secrets[ROOT]
    )
    assert accepted(deleted)["deletedAt"] == B + HOUR // 2
    seen = {grant["grantId"]: grant for grant in await _all(world, edge)}
    assert (seen[live["grantId"]]["state"], seen[live["grantId"]]["endsAt"]) == ("ended", B + HOUR // 2)
    assert (seen[ahead["grantId"]]["state"], seen[ahead["grantId"]]["endsAt"]) == ("cancelled", B + DAY)
    refusal = refused(await world.create(edge))
    assert refusal.details == {"field": "grantTenantId", "reason": "pool-not-offered"}
    async with world.node.database.acquire() as connection:
        assert (
            await connection.fetchval("select count(*) from api_key where tenant_id = $1 and revoked_at is null", A)
            == 0
        )


async def _grant_to_root(world: World, edge: Edge) -> str:
    """D31: root may hold grants like anybody, where the pool is offered to it."""
    offered = await world.graphql.mutate(
        "offerPool",
        {"poolId": "pool", "offeredTo": ROOT},
        "... on PoolOffer { offeredTo }",
        secret=world.secrets[ROOT],
    )
    assert accepted(offered)["offeredTo"] == ROOT
    grant_id: str = (await world.made(edge, grantTenantId=ROOT))["grantId"]
    return grant_id


async def _all(world: World, edge: Edge) -> list[dict[str, object]]:
    listed = await world.list_grants(edge, by=ROOT, all=True)
    assert not isinstance(listed, Refused)
    return list(listed)


def other_than(secret: str) -> str:
    """The same secret but for its last character."""
    return secret[:-1] + ("y" if secret.endswith("z") else "z")
