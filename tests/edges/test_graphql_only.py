"""What only GraphQL has a word for, over HTTP: placement, renewal, amendments, plans, guards (T35..T58, T77..T80, F3,
F4, D29). The seed's numbers, told from outside."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.edges.edge import Answer, Refused
from tests.edges.world import (
    DAY,
    FLAVOR,
    HOUR,
    LARGE,
    MINUTE,
    NOT_READY,
    OTHER,
    POOL,
    RESERVATION,
    ROOT,
    A,
    B,
    World,
    accepted,
    refused,
)

NO_SLOT = Refused("CAPACITY_UNAVAILABLE")
_INSTANCE = "... on Instance { id grantId runState billingMode }"
_GRANT = "... on Grant { id state slots startsAt endsAt version }"
_COUNTS = """query ($id: ID!) { capacityReservation(id: $id) {
    total inUse grantedNow unusedGranted free shortfall } }"""


class Site:
    """The one reservation of its flavor, so that placement has no choice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.edge = world.graphql

    @classmethod
    async def of(cls, world: World, *, total: int) -> Site:
        site = cls(world)
        await site.resize(total)
        return site

    async def resize(self, total: int) -> None:
        """The provider shows another total, and of the others only one."""
        await self.world.report({RESERVATION: total, LARGE: 99_999})

    async def grant(self, slots: int, starts_at: int = B, ends_at: int = B + DAY, **changes: Any) -> str:
        term = {"startsAt": starts_at, "endsAt": ends_at}
        return str((await self.world.made(self.edge, slots=slots, **term, **changes))["grantId"])

    async def run(self, tenant_id: str = A, **changes: Any) -> Answer:
        given = {"projectId": self.world.projects[tenant_id], "flavor": FLAVOR, "name": "one", **changes}
        secret = self.world.secrets[tenant_id]
        return await self.edge.mutate("createInstance", given, _INSTANCE, secret=secret)

    async def runs(self, tenant_id: str = A, *, times: int = 1, **changes: Any) -> list[dict[str, Any]]:
        return [accepted(await self.run(tenant_id, **changes)) for _ in range(times)]

    async def act(self, verb: str, instance: dict[str, Any], tenant_id: str = A) -> Answer:
        return await self.edge.mutate(
            f"{verb}Instance",
            {"instanceId": instance["id"]},
            _INSTANCE,
            secret=self.world.secrets[tenant_id],
            kind="InstanceInput",
        )

    async def counts(self) -> dict[str, int]:
        key = f"{self.world.account_id}/{RESERVATION}"
        answer = await self.edge.ask(_COUNTS, secret=self.world.secrets[ROOT], id=key)
        counts: dict[str, int] = answer["capacityReservation"]
        return counts

    async def used_unused_free(self) -> tuple[int, int, int]:
        counts = await self.counts()
        return counts["inUse"], counts["unusedGranted"], counts["free"]

    async def grants_of(self, *instances: dict[str, Any], tenant_id: str = A) -> list[str | None]:
        document = "query ($id: ID!) { instance(id: $id) { grantId } }"
        secret = self.world.secrets[tenant_id]
        answers = [await self.edge.ask(document, secret=secret, id=one["id"]) for one in instances]
        return [answer["instance"]["grantId"] for answer in answers]


async def test_t35_the_whole_chain_of_the_worked_example(world: World) -> None:
    site = await Site.of(world, total=10)
    grant = await site.grant(6)
    assert (await site.counts())["free"] == 4
    inside = await site.runs(times=2)
    assert [one["grantId"] for one in inside] == [grant, grant]
    assert await site.used_unused_free() == (2, 4, 4)
    others = await site.runs(OTHER, times=4)
    assert [one["grantId"] for one in others] == [None] * 4
    assert await site.run(OTHER) == NO_SLOT
    inside += await site.runs(times=4)
    assert await site.used_unused_free() == (10, 0, 0)
    assert await site.run() == NO_SLOT
    accepted(await site.act("stop", inside[0]))
    assert await site.used_unused_free() == (9, 1, 0)
    assert [await site.run(OTHER), await site.run()] == [NO_SLOT, NO_SLOT], "the stopped one keeps its slot"
    assert accepted(await site.act("start", inside[0]))["grantId"] == grant
    accepted(await site.act("delete", inside[1]))
    assert await site.used_unused_free() == (9, 1, 0)
    assert await site.run(OTHER) == NO_SLOT
    assert accepted(await site.run())["grantId"] == grant
    accepted(await site.act("delete", others[0], OTHER))
    assert (await site.counts())["free"] == 1
    overflow = accepted(await site.run())
    assert (overflow["grantId"], overflow["billingMode"]) == (None, "RESERVED")


async def test_t37_a_shrunken_reservation_refuses_the_grantee_too(world: World) -> None:
    site = await Site.of(world, total=10)
    await site.grant(8)
    await site.runs(times=3)
    await site.runs(OTHER, times=2)
    assert (await site.counts())["free"] == 0
    await site.resize(6)
    counts = await site.counts()
    assert (counts["free"], counts["shortfall"]) == (0, 2)
    await site.runs()
    assert await site.run() == NO_SLOT
    await world.settle()
    short = await site.edge.ask(
        'query { events(all: true, types: ["reservation-grant.capacity-short"]) { nodes { payload } } }',
        secret=world.secrets[ROOT],
    )
    (event,) = short["events"]["nodes"]
    assert (event["payload"]["total"], event["payload"]["grantedSlots"]) == (6, 8)


async def test_t38_a_restricted_grant_serves_its_project_first_and_no_other(world: World) -> None:
    site = await Site.of(world, total=10)
    made = await site.edge.mutate("createProject", {"name": "p"}, "... on Project { id }", secret=world.secrets[A])
    project = accepted(made)["id"]
    restricted, wide = await site.grant(2, projectId=project), await site.grant(3)
    in_p = await site.runs(times=5, projectId=project)
    assert [one["grantId"] for one in in_p] == [restricted, restricted, wide, wide, wide]
    assert accepted(await site.run())["grantId"] is None
    assert (await site.counts())["free"] == 4


async def test_t40_t41_a_stopped_instance_is_counted_once(world: World) -> None:
    site = await Site.of(world, total=5)
    grant = await site.grant(2)
    first, second = await site.runs(times=2)
    accepted(await site.act("stop", second))
    third = accepted(await site.run())
    assert third["grantId"] is None
    assert await site.used_unused_free() == (2, 1, 2)
    await site.resize(2)
    assert await site.act("start", second) == NO_SLOT
    accepted(await site.act("stop", third))
    assert accepted(await site.act("start", second))["grantId"] == grant
    assert accepted(await site.act("start", first))["runState"] == "RUNNING"


async def test_t44_when_the_grant_is_over_a_stopped_instance_has_no_claim(world: World) -> None:
    site = await Site.of(world, total=1)
    grant = await site.grant(1)
    (stopped,) = await site.runs()
    accepted(await site.act("stop", stopped))
    assert await site.run(OTHER) == NO_SLOT
    accepted(await world.end(site.edge, grant))
    assert (await site.counts())["free"] == 1
    await site.runs(OTHER)
    assert await site.act("start", stopped) == NO_SLOT
    assert await site.grants_of(stopped) == [None]


async def test_t46_t47_the_last_slots_under_contention(world: World) -> None:
    site = await Site.of(world, total=3)
    grant = await site.grant(2)
    await site.runs(OTHER)
    await site.runs()
    assert (await site.counts())["free"] == 0
    answers = await asyncio.gather(*(site.run(tenant_id) for tenant_id in (A, OTHER, A, OTHER)))
    (placed,) = [answer for answer in answers if not isinstance(answer, Refused)]
    assert placed["grantId"] == grant
    assert answers.count(NO_SLOT) == 3


async def test_t49_an_attached_instance_without_billing_is_in_no_grant_for_ever(world: World) -> None:
    site = await Site.of(world, total=3)
    given = {
        "accountId": world.account_id,
        "reservationId": RESERVATION,
        "ownerTenantId": A,
        "projectId": world.projects[A],
        "name": "imported",
        "billing": "NONE",
    }
    attached = accepted(await site.edge.mutate("attachInstance", given, _INSTANCE, secret=world.secrets[ROOT]))
    assert (attached["grantId"], attached["billingMode"]) == (None, "NONE")
    assert await site.used_unused_free() == (1, 0, 2)
    first = await site.grant(2, ends_at=B + HOUR)
    renewal = await site.grant(2, starts_at=B + HOUR)
    assert await site.grants_of(attached) == [None]
    world.clock.advance(HOUR)
    assert await site.grants_of(attached) == [None]
    assert accepted(await world.end(site.edge, first))["state"] == "ended"
    assert accepted(await site.run())["grantId"] == renewal
    denied = await site.edge.mutate("attachInstance", given, _INSTANCE, secret=world.secrets[A])
    assert denied == Refused("ACCESS_DENIED")


async def test_t50_t52_a_grant_ahead_protects_nothing_and_takes_in_its_tenants_oldest(world: World) -> None:
    site = await Site.of(world, total=10)
    ahead = await site.grant(2, starts_at=B + HOUR // 2)
    oldest, older, newest = [(await site.runs())[0] for _ in range(3)]
    await site.runs(OTHER, times=7)
    assert await site.run(OTHER) == NO_SLOT
    world.clock.now = B + HOUR // 2 - 1
    assert await site.grants_of(oldest, older, newest) == [None, None, None]
    world.clock.advance(1)
    assert await site.grants_of(oldest, older, newest) == [ahead, ahead, None]


async def test_t53_a_renewal_takes_over_the_oldest_without_a_gap(world: World) -> None:
    site = await Site.of(world, total=10)
    first = await site.grant(5, ends_at=B + HOUR)
    renewal = await site.grant(3, starts_at=B + HOUR)
    running = [(await site.runs())[0] for _ in range(5)]
    assert await site.grants_of(*running) == [first] * 5
    world.clock.advance(HOUR)
    assert await site.grants_of(*running) == [renewal] * 3 + [None] * 2


async def test_instances_of_others_do_not_exist(world: World) -> None:
    site = await Site.of(world, total=10)
    (mine,) = await site.runs()
    for verb in ("stop", "start", "delete"):
        assert await site.act(verb, mine, OTHER) == Refused("NOT_FOUND"), verb
    assert await site.run(OTHER, projectId=world.projects[A]) == Refused(
        "INVALID_INPUT", {"field": "projectId", "reason": "project-not-tenant"}
    )
    assert await site.run(OTHER, tenantId=A) == Refused("ACCESS_DENIED")
    seen = await site.edge.ask(f'{{ instance(id: "{mine["id"]}") {{ id }} }}', secret=world.secrets[OTHER])
    assert seen == {"instance": None}
    assert refused(await site.run(flavor="no-such-flavor")).details["reason"] == "flavor-not-offered"


async def test_a_creation_under_a_key_is_one_instance(world: World) -> None:
    site = await Site.of(world, total=10)
    answers = await asyncio.gather(*(site.run(idempotencyKey="k") for _ in range(8)))
    assert len({accepted(answer)["id"] for answer in answers}) == 1
    assert refused(await site.run(idempotencyKey="k", name="two")).code == "CONFLICT"
    assert (await site.counts())["inUse"] == 1


async def test_f3_amending_never_counts_old_and_new_together(world: World) -> None:
    site = await Site.of(world, total=10)
    grant = await site.grant(6, starts_at=B + HOUR, ends_at=B + 3 * HOUR)

    async def amend(**changes: Any) -> Answer:
        given = {"tenantId": ROOT, "accountId": world.account_id, "grantId": grant, **changes}
        return await site.edge.mutate(
            "amendGrant", given, f"{_GRANT} ... on CapacityUnavailable {{ total granted }}", secret=world.secrets[ROOT]
        )

    grown = accepted(await amend(expectedVersion=1, slots=10))
    assert (grown["slots"], grown["version"]) == (10, 2)
    assert await amend(expectedVersion=1, slots=9) == Refused("CONFLICT", {"reason": "stale-version", "version": 2})
    assert await amend(expectedVersion=2, slots=11) == Refused("CAPACITY_UNAVAILABLE", {"total": 10, "granted": 0})
    moved = accepted(await amend(expectedVersion=2, startsAt=B + 2 * HOUR, endsAt=B + 4 * HOUR))
    assert (moved["startsAt"], moved["endsAt"], moved["version"]) == (B + 2 * HOUR, B + 4 * HOUR, 3)
    world.clock.now = B + 2 * HOUR
    wrong = await amend(expectedVersion=3, startsAt=B + 3 * HOUR)
    assert refused(wrong).details == {"field": "startsAt", "reason": "already-started"}
    denied = await site.edge.mutate(
        "amendGrant",
        {"tenantId": A, "accountId": world.account_id, "grantId": grant, "expectedVersion": 3},
        _GRANT,
        secret=world.secrets[A],
    )
    assert denied == Refused("ACCESS_DENIED")


async def test_f4_a_plan_answers_as_create_would_and_writes_nothing(world: World) -> None:
    site = await Site.of(world, total=10)
    await site.grant(7, ends_at=B + HOUR)
    given = {name: value for name, value in world.creation(slots=4).items() if name != "idempotencyKey"}
    document = """query ($input: PlanGrantInput!) { planGrant(input: $input) {
        ... on GrantPlan { accepted peak total obstacles { startsAt endsAt missing } refusal { code } } } }"""

    async def plan(**changes: Any) -> dict[str, Any]:
        answer = await site.edge.ask(document, secret=world.secrets[ROOT], input={**given, **changes})
        shown: dict[str, Any] = answer["planGrant"]
        return shown

    in_the_way = {"startsAt": B, "endsAt": B + HOUR, "missing": 1}
    assert await plan() == {
        "accepted": False,
        "peak": 7,
        "total": 10,
        "obstacles": [in_the_way],
        "refusal": {"code": "CAPACITY_UNAVAILABLE"},
    }
    assert (await plan(startsAt=B + HOUR))["accepted"] is True
    assert await world.count("capacity_grant") == 1
    accepted(await world.create(site.edge, slots=4, startsAt=B + HOUR))


async def test_t77_to_t80_what_guards_an_account_and_a_binding(world: World) -> None:
    site = await Site.of(world, total=10)
    place = {"accountId": world.account_id, "reservationId": RESERVATION}

    async def delete_account() -> Answer:
        return await site.edge.mutate(
            "deleteProviderAccount",
            {"accountId": world.account_id},
            "... on ProviderAccount { deletedAt }",
            secret=world.secrets[ROOT],
        )

    async def unbind() -> Answer:
        selection = "... on CapacityReservation { poolId }"
        return await site.edge.mutate("unbindReservation", place, selection, secret=world.secrets[ROOT])

    async def withdraw() -> Answer:
        given = {"poolId": POOL, "offeredTo": A}
        return await site.edge.mutate("withdrawPool", given, "... on Pool { id }", secret=world.secrets[ROOT])

    live, ahead = await site.grant(1, ends_at=B + 3 * HOUR), await site.grant(1, starts_at=B + 5 * HOUR)
    in_the_way = Refused("INVALID_STATE", {"grantIds": sorted([live, ahead])})
    assert [await delete_account(), await unbind(), await withdraw()] == [in_the_way] * 3
    accepted(await world.end(site.edge, ahead))
    world.clock.now = B + 3 * HOUR
    not_metered = await delete_account()
    assert not_metered == Refused("INVALID_STATE", {"grantIds": [live]}), "its last hour is owed"
    assert accepted(await unbind())["poolId"] is None
    world.clock.now = B + 3 * HOUR + 500
    await world.node.schedule.run_job("vps.grants")
    assert accepted(await delete_account())["deletedAt"] == world.clock.now
    assert await world.get(site.edge, live, by=A) == Refused("NOT_FOUND")
    usage = await site.edge.ask(
        """query ($from: Millis, $to: Millis) { usage(from: $from, to: $to) { totals { meter quantityMs } } }""",
        secret=world.secrets[A],
        **{"from": B, "to": B + DAY},
    )
    assert usage["usage"]["totals"] == [{"meter": "vm.grant.slot.hours", "quantityMs": str(3 * HOUR)}]


async def test_tenants_projects_keys_and_pools_are_run_from_outside(world: World) -> None:
    edge, root = world.graphql, world.secrets[ROOT]
    made = accepted(
        await edge.mutate(
            "createTenant", {"tenantId": "new", "name": "New"}, "... on Tenant { id isRoot }", secret=root
        )
    )
    assert (made["id"], made["isRoot"]) == ("new", False)
    taken = await edge.mutate("createTenant", {"tenantId": "new", "name": "Again"}, "... on Tenant { id }", secret=root)
    assert taken == Refused("CONFLICT", {"reason": "tenant-exists"})
    issued = accepted(
        await edge.mutate(
            "createApiKey",
            {"tenantId": "new", "name": "k"},
            "... on CreatedApiKey { secret apiKey { id } }",
            secret=root,
        )
    )
    viewer = await edge.ask("{ viewer { tenant { id } apiKey { id name } } }", secret=issued["secret"])
    assert viewer["viewer"] == {"tenant": {"id": "new"}, "apiKey": {"id": issued["apiKey"]["id"], "name": "k"}}
    assert (await edge.ask("{ pools { nodes { id } } }", secret=issued["secret"]))["pools"]["nodes"] == []
    offer = {"poolId": POOL, "offeredTo": "new"}
    accepted(await edge.mutate("offerPool", offer, "... on PoolOffer { offeredTo }", secret=root))
    assert (await edge.ask("{ pools { nodes { id } } }", secret=issued["secret"]))["pools"]["nodes"] == [{"id": POOL}]
    denied = await edge.mutate(
        "createPool", {"poolId": "x", "name": "x"}, "... on Pool { id }", secret=issued["secret"]
    )
    assert denied == Refused("ACCESS_DENIED")
    accepted(await world.create(edge, grantTenantId="new"))


async def test_a_report_decides_what_is_there(world: World) -> None:
    edge, root = world.graphql, world.secrets[ROOT]
    grant = await world.made(edge, slots=3)
    world.clock.advance(90 * MINUTE)
    shown = [{"reservationId": LARGE, "flavor": f"flavor-{LARGE}", "region": "us-west4", "total": 5}]
    reported = await edge.mutate(
        "reportReservations",
        {"accountId": world.account_id, "reservations": shown},
        "... on ReportedReservations { __typename }",
        secret=root,
    )
    assert accepted(reported)["__typename"] == "ReportedReservations"
    seen = accepted(await world.get(edge, grant["grantId"], by=A))
    assert (seen["state"], seen["endsAt"]) == ("ended", B + 90 * MINUTE)
    assert await world.create(edge) == Refused("INVALID_STATE", {"state": "gone"})
    assert await world.create(edge, reservationId=NOT_READY) == Refused("INVALID_STATE", {"state": "gone"})
