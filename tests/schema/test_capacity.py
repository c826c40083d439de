"""Accounts, pools, capacity reservations, instances and usage through GraphQL."""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY

from tests.schema.world import BASE, HOUR, MINUTE, World, until

RESERVATION = """query ($id: ID!) { capacityReservation(id: $id) {
  id accountId reservationId provider flavor region status poolId total inUse grantedNow unusedGranted free shortfall
} }"""


async def test_a_capacity_reservation_shows_its_slots(world: World) -> None:
    """R18 to R21, D45."""
    await world.create_grant(slots=6)
    await world.run_instance("a", "one")
    await world.run_instance("b", "two")
    shown = (await world.data(RESERVATION, id=f"{world.account_id}/res"))["capacityReservation"]

    assert shown == {
        "id": f"{world.account_id}/res",
        "accountId": world.account_id,
        "reservationId": "res",
        "provider": "gcp",
        "flavor": "a3",
        "region": "eu-1",
        "status": "READY",
        "poolId": "pool",
        "total": 10,
        "inUse": 2,
        "grantedNow": 6,
        "unusedGranted": 5,
        "free": 3,
        "shortfall": 0,
    }


async def test_a_tenant_learns_nothing_of_capacity_reservations(world: World) -> None:
    """D46."""
    for document, variables in (
        (RESERVATION, {"id": f"{world.account_id}/res"}),
        ("{ capacityReservations { nodes { id } } }", {}),
        ("query ($id: ID!) { grants(reservation: $id) { nodes { id } } }", {"id": f"{world.account_id}/res"}),
        ("query ($id: ID!) { providerAccount(id: $id) { id } }", {"id": world.account_id}),
        ("{ providerAccounts { nodes { id } } }", {}),
    ):
        result = await world.ask(document, world.callers["a"], **variables)

        assert result.errors is not None, document
        assert (result.errors[0].extensions or {})["code"] == "ACCESS_DENIED"
        assert set((result.data or {}).values()) == {None}


async def test_an_unknown_capacity_reservation_is_null_and_a_malformed_id_is_refused(world: World) -> None:
    unknown = await world.data(RESERVATION, id=f"{world.account_id}/nope")
    malformed = await world.ask(RESERVATION, id="nope")

    assert unknown == {"capacityReservation": None}
    assert malformed.errors is not None
    assert (malformed.errors[0].extensions or {})["code"] == "INVALID_INPUT"


async def test_availability_and_fits_come_from_the_same_books(world: World) -> None:
    """F1."""
    await world.create_grant(slots=7, startsAt=BASE + HOUR, endsAt=BASE + 2 * HOUR)
    document = """query ($id: ID!, $from: Millis!, $to: Millis!) { capacityReservation(id: $id) {
      availability(from: $from, to: $to) { at granted free }
      earliestFit(slots: 4, durationMs: 7200000, first: 1) { startsAt endsAt latestStartAt }
      grants(state: SCHEDULED) { nodes { slots } totalCount }
      instances { totalCount }
    } }"""
    shown = await world.data(document, id=f"{world.account_id}/res", **{"from": BASE, "to": BASE + 3 * HOUR})

    assert shown["capacityReservation"] == {
        "availability": [
            {"at": BASE, "granted": 0, "free": 10},
            {"at": BASE + HOUR, "granted": 7, "free": 3},
            {"at": BASE + 2 * HOUR, "granted": 0, "free": 10},
        ],
        "earliestFit": [
            {
                "startsAt": BASE + 2 * HOUR,
                "endsAt": BASE + 4 * HOUR,
                "latestStartAt": shown["capacityReservation"]["earliestFit"][0]["latestStartAt"],
            }
        ],
        "grants": {"nodes": [{"slots": 7}], "totalCount": 1},
        "instances": {"totalCount": 0},
    }


async def test_a_refused_question_about_one_reservation_leaves_the_rest_of_the_answer(world: World) -> None:
    document = """query ($id: ID!) { capacityReservation(id: $id) {
      total availability(from: 5, to: 5) { at }
    } }"""
    result = await world.ask(document, id=f"{world.account_id}/res")

    assert result.data == {"capacityReservation": {"total": 10, "availability": None}}
    assert result.errors is not None
    assert result.errors[0].extensions == {"code": "INVALID_INPUT", "field": "to", "reason": "ends-not-after-start"}


async def test_unbinding_and_deleting_name_the_grants_in_the_way(world: World) -> None:
    """R51, T77."""
    made = await world.create_grant()
    place = {"accountId": world.account_id, "reservationId": "res"}
    unbound = await world.mutate("unbindReservation", place)
    deleted = await world.mutate("deleteProviderAccount", {"accountId": world.account_id})
    withdrawn = await world.mutate("withdrawPool", {"poolId": "pool", "offeredTo": "*"})

    for refused in (unbound, deleted, withdrawn):
        assert (refused["__typename"], refused["grantIds"]) == ("InvalidState", [made["id"]])


async def test_what_is_free_of_grants_can_be_taken_down(world: World) -> None:
    place = {"accountId": world.account_id, "reservationId": "res"}
    unbound = await world.mutate("unbindReservation", place, "... on CapacityReservation { poolId }")
    withdrawn = await world.mutate("withdrawPool", {"poolId": "pool", "offeredTo": "*"}, "... on Pool { id }")
    again = await world.mutate("withdrawPool", {"poolId": "pool", "offeredTo": "*"})
    deleted = await world.mutate(
        "deleteProviderAccount", {"accountId": world.account_id}, "... on ProviderAccount { id deletedAt }"
    )

    assert unbound == {"__typename": "CapacityReservation", "poolId": None}
    assert withdrawn == {"__typename": "Pool", "id": "pool"}
    assert again["code"] == "NOT_FOUND"
    assert (deleted["id"], deleted["deletedAt"]) == (world.account_id, world.clock.now)


async def test_a_tenant_sees_the_pools_that_are_offered_to_it(world: World) -> None:
    await world.mutate("createPool", {"poolId": "other", "name": "Other"})
    made = await world.mutate(
        "offerPool", {"poolId": "other", "offeredTo": "b"}, "... on PoolOffer { poolId offeredTo }"
    )
    document = "{ pools { nodes { id } } }"
    of_a = (await world.data(document, world.callers["a"]))["pools"]["nodes"]
    of_b = (await world.data(document, world.callers["b"]))["pools"]["nodes"]
    offers = await world.data('{ poolOffers(poolId: "other") { nodes { offeredTo } pageInfo { endCursor } } }')
    cursor = offers["poolOffers"]["pageInfo"]["endCursor"]

    assert (made["poolId"], made["offeredTo"]) == ("other", "b")
    assert [node["id"] for node in of_a] == ["pool"]
    assert {node["id"] for node in of_b} == {"pool", "other"}
    assert offers["poolOffers"]["nodes"] == [{"offeredTo": "b"}]
    assert await world.data('{ pool(id: "other") { id } }', world.callers["a"]) == {"pool": None}
    assert (
        await world.data(
            'query ($a: String) { poolOffers(poolId: "other", after: $a) { nodes { offeredTo } } }', a=cursor
        )
    )["poolOffers"]["nodes"] == []


async def test_a_cursor_behind_an_offer_to_everybody_works(world: World) -> None:
    """The place of a tenant is taken by a star."""
    document = 'query ($after: String) { poolOffers(poolId: "pool", after: $after) { edges { cursor } } }'
    first = (await world.data(document))["poolOffers"]["edges"]
    rest = (await world.data(document, after=first[0]["cursor"]))["poolOffers"]["edges"]

    assert (len(first), rest) == (1, [])


async def test_an_accounts_settings_and_kind_are_checked(world: World) -> None:
    unknown = await world.mutate("createProviderAccount", {"name": "x", "provider": "gcp", "kind": "nope"})
    wrong = await world.mutate(
        "createProviderAccount", {"name": "x", "provider": "gcp", "kind": "push", "settings": {"path": "x"}}
    )
    accounts = await world.data("{ providerAccounts { nodes { id kind settings scanProblems deletedAt } } }")

    assert unknown["code"] == "INVALID_INPUT"
    assert (wrong["code"], wrong["field"]) == ("INVALID_INPUT", "settings.path")
    assert accounts["providerAccounts"]["nodes"] == [
        {"id": world.account_id, "kind": "push", "settings": {}, "scanProblems": [], "deletedAt": None}
    ]


async def test_what_a_complete_report_leaves_out_is_gone(world: World) -> None:
    """R54, R55, R56."""
    made = await world.create_grant()
    instance = await world.run_instance("a")
    selection = "... on ReportedReservations { capacityReservations { reservationId total } }"
    other = [{"reservationId": "new", "flavor": "a3", "region": "eu-1", "total": 4}]
    partial = await world.mutate(
        "reportReservations", {"accountId": world.account_id, "reservations": [], "complete": False}, selection
    )
    reported = await world.mutate(
        "reportReservations", {"accountId": world.account_id, "reservations": other}, selection
    )
    states = """{
      capacityReservations { nodes { reservationId status } } grants(all: true) { nodes { state endedReason } }
    }"""
    shown = await world.data(states)
    document = "query ($id: ID!) { instance(id: $id) { runState billingMode grantId reservationId } }"

    assert partial["capacityReservations"] == []
    assert reported["capacityReservations"] == [{"reservationId": "new", "total": 4}]
    assert {node["reservationId"]: node["status"] for node in shown["capacityReservations"]["nodes"]} == {
        "res": "GONE",
        "new": "READY",
    }
    assert shown["grants"]["nodes"] == [{"state": "ENDED", "endedReason": "reservation-gone"}]
    assert (await world.data(document, id=instance["id"]))["instance"] == {
        "runState": "RUNNING",
        "billingMode": "ONDEMAND",
        "grantId": None,
        "reservationId": "res",
    }
    assert made["id"]


async def test_instances_go_through_their_life(world: World) -> None:
    """R22 to R25, R28: a tenant that finds no slot is told no totals."""
    grant = await world.create_grant(slots=10)
    inside = await world.run_instance("a")
    refused = await world.run_instance("b")
    named = {"instanceId": inside["id"]}
    selection = "... on Instance { runState grantId }"
    of_a = world.callers["a"]
    stopped = await world.mutate("stopInstance", named, selection, caller=of_a)
    started = await world.mutate("startInstance", named, selection, caller=of_a)
    foreign = await world.mutate("deleteInstance", named, caller=world.callers["b"])
    deleted = await world.mutate("deleteInstance", named, selection, caller=of_a)
    late = await world.mutate("startInstance", named, caller=of_a)

    assert (inside["grantId"], inside["runState"]) == (grant["id"], "RUNNING")
    assert refused == {
        "__typename": "CapacityUnavailable",
        "code": "CAPACITY_UNAVAILABLE",
        "message": refused["message"],
    }
    assert (stopped["runState"], stopped["grantId"]) == ("STOPPED", grant["id"])
    assert (started["runState"], started["grantId"]) == ("RUNNING", grant["id"])
    assert foreign["code"] == "NOT_FOUND"
    assert (deleted["runState"], deleted["grantId"]) == ("DELETED", None)
    assert (late["code"], late["refusedState"]) == ("INVALID_STATE", "deleted")


async def test_a_refused_instance_has_no_totals_and_no_fit(world: World) -> None:
    """R28."""
    await world.create_grant(slots=10)
    wanted = {"projectId": world.projects["b"], "flavor": "a3", "name": "one"}
    refused = await world.mutate(
        "createInstance",
        wanted,
        "... on CapacityUnavailable { total granted earliestFit { startsAt } }",
        caller=world.callers["b"],
    )

    assert (refused["total"], refused["granted"], refused["earliestFit"]) == (None, None, None)


async def test_an_attached_instance_can_be_without_billing(world: World) -> None:
    """R31, T49."""
    wanted = {
        "accountId": world.account_id,
        "reservationId": "res",
        "ownerTenantId": "a",
        "projectId": world.projects["a"],
        "name": "imported",
        "billing": "NONE",
    }
    selection = "... on Instance { billing billingMode grantId tenantId }"
    attached = await world.mutate("attachInstance", wanted, selection)
    await world.create_grant()
    listed = await world.data("{ instances(all: true, runState: RUNNING) { nodes { billing grantId } totalCount } }")

    assert (attached["billing"], attached["billingMode"], attached["tenantId"]) == ("NONE", "NONE", "a")
    assert listed["instances"] == {"nodes": [{"billing": "NONE", "grantId": None}], "totalCount": 1}


async def test_usage_is_shown_as_records_and_totals(world: World) -> None:
    """R38, R39, T61: slots of a grant from 08:40 to 10:10 of a day."""
    made = await world.create_grant(slots=4, startsAt=BASE + 40 * MINUTE, endsAt=BASE + 130 * MINUTE)
    world.clock.advance(3 * HOUR)
    await _meter(world)
    document = """query ($grant: ID, $from: Millis, $to: Millis) {
      usage(grantId: $grant, meters: ["vm.grant.slot.hours"], from: $from, to: $to) {
        records { nodes { hourStart hours quantityMs meter grantId tags tenantId } }
        totals(groupBy: [GRANT]) { meter hours quantityMs records grantId hourStart tenantId }
      }
    }"""
    usage = (await world.data(document, world.callers["a"], grant=made["id"]))["usage"]
    later = (await world.data(document, world.callers["a"], **{"from": BASE + HOUR, "to": BASE + 2 * HOUR}))["usage"]

    assert [record["hours"] for record in usage["records"]["nodes"]] == ["0.666667", "4.000000", "1.333333"]
    assert usage["records"]["nodes"][0]["tags"]["pool"] == "pool"
    assert usage["totals"] == [
        {
            "meter": "vm.grant.slot.hours",
            "hours": "6.000000",
            "quantityMs": str(6 * HOUR),
            "records": 3,
            "grantId": made["id"],
            "hourStart": None,
            "tenantId": None,
        }
    ]
    assert [record["hourStart"] for record in later["records"]["nodes"]] == [BASE + HOUR]


async def test_usage_of_everybody_is_for_root_and_comes_as_totals(world: World) -> None:
    await world.create_grant(endsAt=BASE + HOUR)
    await world.create_grant(grantTenantId="b", endsAt=BASE + HOUR)
    world.clock.advance(HOUR)
    await _meter(world)
    document = "{ usage(all: true) { totals(groupBy: [TENANT]) { tenantId hours } } }"
    everybodys = (await world.data(document))["usage"]["totals"]
    denied = await world.ask(document, world.callers["a"])
    records = await world.ask("{ usage(all: true) { records { nodes { meter } } } }")
    of_b = await world.data('{ usage(ofTenantId: "b") { records { nodes { tenantId hours } } } }')

    assert everybodys == [{"tenantId": "a", "hours": "3.000000"}, {"tenantId": "b", "hours": "3.000000"}]
    assert denied.data == {"usage": {"totals": None}}
    assert records.errors is not None
    assert (records.errors[0].extensions or {})["field"] == "ofTenantId"
    assert of_b["usage"]["records"]["nodes"] == [{"tenantId": "b", "hours": "3.000000"}]


async def _meter(world: World) -> None:
    from workers.capacity.meter import MeterJob

    await MeterJob(world.runtime.asker).run_once()


async def test_an_agents_report_is_the_accounts_latest_look(world: World) -> None:
    """An account that reports by itself is never scanned; what it told, and when, is shown all the same."""
    document = "query ($id: ID!) { providerAccount(id: $id) { scannedAt scanComplete scanProblems } }"
    reported = [{"reservationId": "res", "flavor": "a3", "region": "eu-1", "total": 10}]
    wanted = {"accountId": world.account_id, "reservations": reported}
    seen = []
    for complete in (True, False, True):
        world.clock.advance(MINUTE)
        await world.mutate("reportReservations", {**wanted, "complete": complete})
        seen.append((await world.data(document, id=world.account_id))["providerAccount"])
    refused = await world.mutate("reportReservations", {**wanted, "reservations": [{**reported[0], "total": -1}]})
    after = (await world.data(document, id=world.account_id))["providerAccount"]

    assert [each["scannedAt"] for each in seen] == [BASE + n * MINUTE for n in (1, 2, 3)]
    assert [each["scanComplete"] for each in seen] == [True, False, True]
    assert seen[1]["scanProblems"] == ["the agent says that it could not see everything"]
    assert refused["code"] == "INVALID_INPUT"
    assert after == seen[2]


async def test_a_reservation_that_is_in_no_pool_has_nothing_free(world: World) -> None:
    document = "query ($id: ID!) { capacityReservation(id: $id) { total inUse free poolId } }"
    id_ = f"{world.account_id}/res"
    bound = (await world.data(document, id=id_))["capacityReservation"]
    await world.mutate("unbindReservation", {"accountId": world.account_id, "reservationId": "res"})
    unbound = (await world.data(document, id=id_))["capacityReservation"]

    assert bound == {"total": 10, "inUse": 0, "free": 10, "poolId": "pool"}
    assert unbound == {"total": 10, "inUse": 0, "free": 0, "poolId": None}
    assert (await world.run_instance("a"))["__typename"] != "Instance"


async def test_every_open_subscription_is_counted(world: World) -> None:
    def count() -> float:
        value = REGISTRY.get_sample_value("earmark_subscribers")
        assert value is not None
        return value

    before = count()
    snapshots = await world.stream(
        "subscription ($id: ID!) { capacityReservationChanged(id: $id) { total } }", id=f"{world.account_id}/res"
    )
    assert (await anext(snapshots)).errors is None
    events = await world.stream("subscription { grantEvents(all: true) { id } }")
    listening = asyncio.ensure_future(anext(events))
    await until(lambda: count() == before + 2)
    await snapshots.aclose()
    await world.create_grant(slots=1)
    await listening
    await events.aclose()
    assert count() == before
