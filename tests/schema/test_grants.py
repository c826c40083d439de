"""Grants through GraphQL: the seed's methods, their refusals, and what hangs on a grant."""

from __future__ import annotations

from tests.schema.world import BASE, CREATE_GRANT, HOUR, MINUTE, World

GRANT = "query ($id: ID!, $tenantId: ID) { grant(id: $id, tenantId: $tenantId) { id accountId reservationId state } }"


async def test_an_instant_round_trips_unchanged(world: World) -> None:
    """T95, D25: an instant does not fit GraphQL's own Int."""
    made = await world.create_grant(startsAt=1_800_000_000_000, endsAt=1_800_086_400_000)

    assert (made["startsAt"], made["endsAt"], made["state"]) == (1_800_000_000_000, 1_800_086_400_000, "ACTIVE")
    assert (made["tenantId"], made["poolId"], made["region"], made["provider"]) == ("a", "pool", "eu-1", "gcp")


async def test_a_full_reservation_says_how_full_and_when_it_fits(world: World) -> None:
    """T2, F1."""
    await world.create_grant(slots=10, endsAt=BASE + 2 * HOUR)

    refused = await world.create_grant(slots=1, startsAt=BASE + HOUR, endsAt=BASE + 2 * HOUR)

    assert (refused["__typename"], refused["code"]) == ("CapacityUnavailable", "CAPACITY_UNAVAILABLE")
    assert (refused["total"], refused["granted"]) == (10, 10)
    assert (refused["earliestFit"]["startsAt"], refused["earliestFit"]["endsAt"]) == (BASE + 2 * HOUR, BASE + 3 * HOUR)


async def test_a_retry_gets_the_grant_and_another_request_under_its_key_a_conflict(world: World) -> None:
    """T23, R5, R6."""
    first = await world.create_grant(slots=5, endsAt=BASE + HOUR, idempotencyKey="k")
    world.clock.advance(6 * MINUTE)
    again = await world.create_grant(slots=5, startsAt=BASE, endsAt=BASE + HOUR, idempotencyKey="k")
    other = await world.create_grant(slots=6, startsAt=BASE, endsAt=BASE + HOUR, idempotencyKey="k")

    assert again["id"] == first["id"]
    assert (other["code"], other["conflictReason"]) == ("CONFLICT", "idempotency-key-reused")
    assert other["conflictGrantId"] == first["id"]


async def test_typed_refusals_name_the_field_and_the_reason(world: World) -> None:
    """R64, T7, T8, T18."""
    early = await world.create_grant(startsAt=BASE - 5 * MINUTE - 1)
    empty = await world.create_grant(endsAt=BASE)
    foreign = await world.create_grant(projectId=world.projects["b"])
    large = await world.create_grant(slots=100_001)

    assert (early["field"], early["reason"]) == ("startsAt", "starts-too-early")
    assert (empty["field"], empty["reason"]) == ("endsAt", "ends-not-after-start")
    assert (foreign["field"], foreign["reason"]) == ("projectId", "project-not-grantee")
    assert (large["code"], large["field"]) == ("INVALID_INPUT", "slots")


async def test_a_stranger_is_denied_before_anything_is_looked_up(world: World) -> None:
    """R4."""
    denied = await world.create_grant(caller=world.callers["a"], accountId="pacct_" + "0" * 26)

    assert denied == {"__typename": "AccessDenied", "code": "ACCESS_DENIED", "message": denied["message"]}


async def test_what_is_no_instant_is_refused_with_the_variables(world: World) -> None:
    """T20, D24."""
    expected = {"code": "INVALID_INPUT", "field": "endsAt", "reason": "wrong-type"}
    for wrong in ("1800000000000", 2**53, -1, 1.5, True, None):
        result = await world.ask(CREATE_GRANT, input=world.grant_input(endsAt=wrong))

        assert result.data is None
        assert result.errors is not None
        assert result.errors[0].extensions == expected


async def test_a_whole_number_with_a_point_is_an_instant(world: World) -> None:
    """D24."""
    made = await world.create_grant(endsAt=float(BASE + HOUR))

    assert made["endsAt"] == BASE + HOUR


async def test_a_tenant_reads_its_own_grant_without_the_platforms_secrets(world: World) -> None:
    """T31, D46, R60."""
    made = await world.create_grant()
    seen = await world.data(GRANT, world.callers["a"], id=made["id"])
    unseen = await world.data(GRANT, world.callers["b"], id=made["id"])
    by_root = await world.data(GRANT, id=made["id"])

    assert seen["grant"] == {"id": made["id"], "accountId": None, "reservationId": None, "state": "ACTIVE"}
    assert unseen["grant"] is None
    assert (by_root["grant"]["accountId"], by_root["grant"]["reservationId"]) == (world.account_id, "res")


async def test_root_cannot_act_in_a_tenant_it_is_no_member_of(world: World) -> None:
    """T31."""
    made = await world.create_grant()
    result = await world.ask(GRANT, id=made["id"], tenantId="a")

    assert result.data == {"grant": None}
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "ACCESS_DENIED"


async def test_only_root_lists_everybodys_grants(world: World) -> None:
    """T32, T34, R61."""
    of_a = await world.create_grant()
    of_b = await world.create_grant(grantTenantId="b")
    document = "query ($all: Boolean!) { grants(all: $all) { totalCount nodes { id } } }"

    own = await world.data(document, world.callers["a"], all=False)
    everybodys = await world.data(document, all=True)
    roots_own = await world.data(document, all=False)
    denied = await world.ask(document, world.callers["a"], all=True)

    assert own["grants"] == {"totalCount": 1, "nodes": [{"id": of_a["id"]}]}
    assert [node["id"] for node in everybodys["grants"]["nodes"]] == [of_b["id"], of_a["id"]]
    assert roots_own["grants"]["nodes"] == []
    assert denied.data == {"grants": None}
    assert denied.errors is not None
    assert (denied.errors[0].extensions or {})["code"] == "ACCESS_DENIED"


async def test_pages_show_each_grant_once(world: World) -> None:
    """T33, D22: all made in one millisecond."""
    made = {(await world.create_grant(slots=1))["id"] for _ in range(7)}
    document = """query ($after: String) {
      grants(all: true, first: 3, after: $after) {
        edges { cursor node { id } } pageInfo { hasNextPage hasPreviousPage endCursor }
      }
    }"""
    seen: list[str] = []
    sizes = []
    after = None
    while True:
        page = (await world.data(document, after=after))["grants"]
        seen += [edge["node"]["id"] for edge in page["edges"]]
        sizes.append(len(page["edges"]))
        assert page["pageInfo"]["hasPreviousPage"] == (after is not None)
        after = page["pageInfo"]["endCursor"]
        assert after == page["edges"][-1]["cursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break

    assert sizes == [3, 3, 1]
    assert len(seen) == 7
    assert set(seen) == made


async def test_filters_choose_by_state_project_reservation_and_term(world: World) -> None:
    """F10, D22."""
    active = await world.create_grant(endsAt=BASE + HOUR)
    scheduled = await world.create_grant(startsAt=BASE + 2 * HOUR, projectId=world.projects["a"])
    reservation = f"{world.account_id}/res"
    document = """query ($state: GrantState, $project: ID, $reservation: ID, $overlaps: TermInput) {
      grants(all: true, state: $state, projectId: $project, reservation: $reservation, overlaps: $overlaps) {
        nodes { id } totalCount
      }
    }"""

    async def chosen(**variables: object) -> list[str]:
        found = (await world.data(document, **variables))["grants"]
        assert found["totalCount"] == len(found["nodes"])
        return [node["id"] for node in found["nodes"]]

    assert await chosen(state="ACTIVE") == [active["id"]]
    assert await chosen(project=world.projects["a"]) == [scheduled["id"]]
    assert len(await chosen(reservation=reservation)) == 2
    assert await chosen(overlaps={"startsAt": BASE + HOUR, "endsAt": BASE + 3 * HOUR}) == [scheduled["id"]]


async def test_a_grant_shows_what_its_instances_hold_and_use(world: World) -> None:
    """F5, R47."""
    made = await world.create_grant(slots=3)
    inside = await world.run_instance("a", "one")
    stopped = await world.run_instance("a", "two")
    await world.mutate("stopInstance", {"instanceId": stopped["id"]}, caller=world.callers["a"])
    world.clock.advance(90 * MINUTE)
    document = """query ($id: ID!) { grant(id: $id) {
      held running stopped idle usedSlotMs usedSlotHours committedSlotMs committedSlotHours orphaned
      instances(first: 5) { nodes { id grantId billingMode accountId } }
      events { nodes { type grantId slots startsAt occurredAt requestId } }
    } }"""

    grant = (await world.data(document, world.callers["a"], id=made["id"]))["grant"]

    assert (grant["held"], grant["running"], grant["stopped"], grant["idle"]) == (2, 1, 1, 2)
    assert (grant["usedSlotMs"], grant["usedSlotHours"]) == (str(90 * MINUTE), "1.500000")
    assert (grant["committedSlotMs"], grant["committedSlotHours"]) == (str(270 * MINUTE), "4.500000")
    assert grant["orphaned"] is False
    assert [node["id"] for node in grant["instances"]["nodes"]] == [stopped["id"], inside["id"]]
    assert {node["grantId"] for node in grant["instances"]["nodes"]} == {made["id"]}


async def test_ending_cancels_what_has_not_begun(world: World) -> None:
    """R48, T10."""
    later = await world.create_grant(startsAt=BASE + HOUR)
    wanted = {"tenantId": "root", "accountId": world.account_id, "grantId": later["id"]}
    cancelled = await world.mutate("endGrant", wanted, "... on Grant { state endsAt cancelledAt }")
    again = await world.mutate("endGrant", wanted, "... on Grant { state endsAt cancelledAt }")
    elsewhere = await world.mutate("endGrant", {**wanted, "accountId": "pacct_" + "0" * 26})

    assert (cancelled["state"], cancelled["endsAt"], cancelled["cancelledAt"]) == ("CANCELLED", later["endsAt"], BASE)
    assert again == cancelled
    assert elsewhere["code"] == "NOT_FOUND"


async def test_amending_needs_the_latest_version(world: World) -> None:
    """F3."""
    made = await world.create_grant(slots=3)
    wanted = {"tenantId": "root", "accountId": world.account_id, "grantId": made["id"], "expectedVersion": 1}
    amended = await world.mutate("amendGrant", {**wanted, "slots": 5}, "... on Grant { slots version }")
    stale = await world.mutate("amendGrant", {**wanted, "slots": 4})

    assert (amended["slots"], amended["version"]) == (5, 2)
    assert (stale["code"], stale["conflictVersion"]) == ("CONFLICT", 2)


async def test_a_plan_says_what_stands_in_the_way_and_writes_nothing(world: World) -> None:
    """F4."""
    blocking = await world.create_grant(slots=8, startsAt=BASE + HOUR, endsAt=BASE + 2 * HOUR)
    document = """query ($input: PlanGrantInput!) { planGrant(input: $input) {
      ... on GrantPlan {
        accepted total peak physicalRoom adopted obstacles { startsAt endsAt granted missing grantIds }
        runsOut { at granted free }
        refusal { code ... on CapacityUnavailable { total granted earliestFit { startsAt } } }
      }
      ... on Refusal { code }
    } }"""
    wanted = world.grant_input(slots=4, endsAt=BASE + 3 * HOUR)
    del wanted["idempotencyKey"]

    plan = (await world.data(document, input=wanted))["planGrant"]
    fitting = (await world.data(document, input={**wanted, "slots": 2}))["planGrant"]
    denied = (await world.data(document, world.callers["a"], input=wanted))["planGrant"]
    count = (await world.data("{ grants(all: true) { totalCount } }"))["grants"]["totalCount"]

    assert (plan["accepted"], plan["total"], plan["peak"]) == (False, 10, 8)
    assert plan["obstacles"] == [
        {
            "startsAt": BASE + HOUR,
            "endsAt": BASE + 2 * HOUR,
            "granted": 8,
            "missing": 2,
            "grantIds": [blocking["id"]],
        }
    ]
    assert plan["refusal"]["code"] == "CAPACITY_UNAVAILABLE"
    assert plan["refusal"]["earliestFit"] == {"startsAt": BASE + 2 * HOUR}
    assert (fitting["accepted"], fitting["refusal"], fitting["physicalRoom"]) == (True, None, 2)
    assert fitting["runsOut"] == [{"at": BASE + HOUR, "granted": 10, "free": 0}]
    assert denied == {"code": "ACCESS_DENIED"}
    assert count == 1


async def test_a_grant_of_a_deleted_project_is_shown_as_orphaned(world: World) -> None:
    """D30."""
    made = await world.create_grant(projectId=world.projects["a"])
    await world.mutate("deleteProject", {"projectId": world.projects["a"]})

    grant = (await world.data("query ($id: ID!) { grant(id: $id) { orphaned state } }", id=made["id"]))["grant"]

    assert grant == {"orphaned": True, "state": "ACTIVE"}
