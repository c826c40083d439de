"""Instances that start again or change their project, over HTTP (R36, D27, D32, D39, B23)."""

from __future__ import annotations

from typing import Any

from tests.edges.edge import Answer, Refused
from tests.edges.world import DAY, FLAVOR, HOUR, OTHER, POOL, RESERVATION, ROOT, A, B, World, accepted, refused

NO_SLOT = Refused("CAPACITY_UNAVAILABLE")
SECOND = "second"
_INSTANCE = "... on Instance { id projectId grantId runState billingMode reservationId }"
_PLACES = "query ($id: ID!) { instance(id: $id) { reservationId runState } }"
_LISTED = "{ instances { nodes { id runState } totalCount } }"


async def create(world: World, tenant_id: str = A) -> dict[str, Any]:
    given = {"projectId": world.projects[tenant_id], "flavor": FLAVOR, "name": "one"}
    return accepted(await world.graphql.mutate("createInstance", given, _INSTANCE, secret=world.secrets[tenant_id]))


async def act(world: World, verb: str, instance: dict[str, Any], tenant_id: str = A, **given: Any) -> Answer:
    named = {"instanceId": instance["id"], **given}
    secret = world.secrets[tenant_id]
    return await world.graphql.mutate(f"{verb}Instance", named, _INSTANCE, secret=secret, kind="InstanceInput")


async def change(world: World, instance: dict[str, Any], project_id: str, **given: Any) -> Answer:
    named = {"instanceId": instance["id"], "projectId": project_id, **given}
    return await world.graphql.mutate("changeInstanceProject", named, _INSTANCE, secret=world.secrets[A])


async def place_of(world: World, instance: dict[str, Any]) -> tuple[str, str]:
    answer = await world.graphql.ask(_PLACES, secret=world.secrets[ROOT], id=instance["id"])
    shown = answer["instance"]
    return shown["reservationId"], shown["runState"]


async def two_alike(world: World) -> None:
    """RESERVATION and SECOND with one slot of one flavor each."""
    await world.report({RESERVATION: 1, SECOND: 1}, alike=SECOND)
    await world.bind(SECOND)


async def test_a_start_goes_wherever_there_is_room_and_a_tenant_sees_one_instance(world: World) -> None:
    await two_alike(world)
    moving = await create(world)
    accepted(await act(world, "stop", moving))
    assert await place_of(world, moving) == (SECOND, "STOPPED")
    stranger = await create(world, OTHER)
    assert await place_of(world, stranger) == (SECOND, "RUNNING")
    started = accepted(await act(world, "start", moving, idempotencyKey="k"))
    assert (started["runState"], started["grantId"], started["billingMode"]) == ("RUNNING", None, "RESERVED")
    assert await place_of(world, moving) == (RESERVATION, "RUNNING")
    assert accepted(await act(world, "start", moving, idempotencyKey="k")) == started
    listed = await world.graphql.ask(_LISTED, secret=world.secrets[A])
    assert listed["instances"] == {"nodes": [{"id": moving["id"], "runState": "RUNNING"}], "totalCount": 1}
    accepted(await act(world, "delete", moving))
    assert refused(await act(world, "start", moving)).code == "INVALID_STATE"


async def test_what_is_no_longer_offered_takes_no_start(world: World) -> None:
    """The reservation where it was has a slot, and is in no pool of the tenant any more."""
    stopped = await create(world)
    accepted(await act(world, "stop", stopped))
    withdrawn = {"poolId": POOL, "offeredTo": A}
    root = world.secrets[ROOT]
    accepted(await world.graphql.mutate("withdrawPool", withdrawn, "... on Pool { id }", secret=root))
    assert await act(world, "start", stopped) == NO_SLOT
    accepted(await world.graphql.mutate("offerPool", withdrawn, "... on PoolOffer { __typename }", secret=root))
    unbound = {"accountId": world.account_id, "reservationId": RESERVATION}
    shown = "... on CapacityReservation { id }"
    accepted(await world.graphql.mutate("unbindReservation", unbound, shown, secret=root))
    assert await act(world, "start", stopped) == NO_SLOT
    assert await place_of(world, stopped) == (RESERVATION, "STOPPED")
    await world.bind(RESERVATION)
    assert accepted(await act(world, "start", stopped))["runState"] == "RUNNING"


async def test_an_own_grants_slot_on_another_reservation_comes_first(world: World) -> None:
    """D32."""
    await two_alike(world)
    stopped = await create(world)
    accepted(await act(world, "stop", stopped))
    grant = await world.made(world.graphql, reservationId=RESERVATION, startsAt=B, endsAt=B + DAY)
    started = accepted(await act(world, "start", stopped))
    assert (started["grantId"], await place_of(world, stopped)) == (grant["grantId"], (RESERVATION, "RUNNING"))


async def test_d39_an_instance_changes_its_project(world: World) -> None:
    other = await world.graphql.mutate(
        "createProject", {"tenantId": A, "name": "other"}, "... on Project { id }", secret=world.secrets[ROOT]
    )
    project_id = accepted(other)["id"]
    await world.made(world.graphql, projectId=world.projects[A], startsAt=B, endsAt=B + DAY)
    inside = await create(world)
    assert inside["grantId"]
    world.clock.advance(HOUR)
    changed = accepted(await change(world, inside, project_id))
    assert (changed["projectId"], changed["grantId"], changed["runState"]) == (project_id, None, "RUNNING")
    somebody_elses = refused(await change(world, inside, world.projects[OTHER]))
    assert (somebody_elses.code, somebody_elses.details["reason"]) == ("INVALID_INPUT", "project-not-tenant")


async def test_b23_a_change_of_project_with_a_start_is_whole_or_nothing(world: World) -> None:
    other = await world.graphql.mutate(
        "createProject", {"tenantId": A, "name": "other"}, "... on Project { id }", secret=world.secrets[ROOT]
    )
    project_id = accepted(other)["id"]
    await world.report({RESERVATION: 1})
    grant = await world.made(world.graphql, projectId=world.projects[A], startsAt=B, endsAt=B + DAY)
    inside = await create(world)
    accepted(await act(world, "stop", inside))
    assert await change(world, inside, project_id, start=True) == NO_SLOT
    unchanged = accepted(await act(world, "start", inside))
    assert (unchanged["projectId"], unchanged["grantId"]) == (world.projects[A], grant["grantId"])
    accepted(await act(world, "stop", inside))
    await world.report({RESERVATION: 2})
    started = accepted(await change(world, inside, project_id, start=True))
    assert (started["projectId"], started["grantId"], started["runState"]) == (project_id, None, "RUNNING")
