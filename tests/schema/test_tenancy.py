"""Tenants, projects and keys through GraphQL."""

from __future__ import annotations

from tests.schema.world import HOUR, World


async def test_the_viewer_is_the_holder_of_the_key(world: World) -> None:
    document = "{ viewer { tenant { id isRoot name } apiKey { permissions prefix } } }"
    root = (await world.data(document))["viewer"]
    of_a = (await world.data(document, world.callers["a"]))["viewer"]

    assert root["tenant"] == {"id": "root", "isRoot": True, "name": "Platform"}
    assert root["apiKey"]["permissions"] == ["*"]
    assert of_a["tenant"] == {"id": "a", "isRoot": False, "name": "A"}
    assert len(of_a["apiKey"]["prefix"]) == 12


async def test_root_sees_all_tenants_and_a_tenant_itself(world: World) -> None:
    document = "{ tenants { nodes { id } totalCount } }"
    all_of_them = (await world.data(document))["tenants"]
    own = (await world.data(document, world.callers["a"]))["tenants"]
    foreign = await world.data('{ tenant(id: "b") { id } }', world.callers["a"])

    assert {node["id"] for node in all_of_them["nodes"]} == {"root", "a", "b"}
    assert all_of_them["totalCount"] is None
    assert [node["id"] for node in own["nodes"]] == ["a"]
    assert foreign == {"tenant": None}


async def test_a_taken_name_is_a_conflict(world: World) -> None:
    refused = await world.mutate("createTenant", {"tenantId": "a", "name": "Again"})

    assert (refused["code"], refused["conflictReason"]) == ("CONFLICT", "tenant-exists")


async def test_projects_of_another_tenant_do_not_exist(world: World) -> None:
    document = "query ($tenant: ID) { projects(tenantId: $tenant) { nodes { id name } } }"
    own = await world.data(document, world.callers["a"])
    foreign = await world.data(document, world.callers["a"], tenant="b")
    by_root = await world.data(document, tenant="b")

    assert own["projects"]["nodes"] == [{"id": world.projects["a"], "name": "main"}]
    assert foreign == {"projects": None}
    assert [node["id"] for node in by_root["projects"]["nodes"]] == [world.projects["b"]]
    assert await world.data(
        "query ($id: ID!) { project(id: $id) { id } }", world.callers["b"], id=world.projects["a"]
    ) == {"project": None}


async def test_the_secret_of_a_key_is_told_once(world: World) -> None:
    wanted = {"name": "ci", "permissions": ["compute:quotas:read"], "idempotencyKey": "once"}
    selection = "... on CreatedApiKey { secret apiKey { id name permissions expiresAt } }"
    made = await world.mutate("createApiKey", wanted, selection, caller=world.callers["a"])
    again = await world.mutate("createApiKey", wanted, selection, caller=world.callers["a"])
    keys = await world.data("{ apiKeys { nodes { name } } }", world.callers["a"])

    assert made["secret"].startswith("emk_")
    assert again == {**made, "secret": None}
    assert made["apiKey"]["permissions"] == ["compute:quotas:read"]
    assert [node["name"] for node in keys["apiKeys"]["nodes"]] == ["ci", "k"]


async def test_a_key_that_may_read_quotas_reads_no_instances(world: World) -> None:
    made = await world.create_grant()
    wanted = {"tenantId": "a", "name": "narrow", "permissions": ["compute:quotas:read"]}
    key = await world.mutate("createApiKey", wanted, "... on CreatedApiKey { secret }")
    narrow = await world.caller_of(key["secret"])
    document = "query ($id: ID!) { grant(id: $id) { id instances { nodes { id } } } }"

    result = await world.ask(document, narrow, id=made["id"])

    assert result.data == {"grant": {"id": made["id"], "instances": None}}
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "ACCESS_DENIED"


async def test_a_revoked_key_is_shown_as_such(world: World) -> None:
    made = await world.mutate(
        "createApiKey",
        {"name": "old", "expiresAt": world.clock.now + HOUR},
        "... on CreatedApiKey { apiKey { id } }",
        caller=world.callers["a"],
    )
    key_id = made["apiKey"]["id"]
    stranger = await world.mutate("revokeApiKey", {"keyId": key_id}, caller=world.callers["b"])
    revoked = await world.mutate("revokeApiKey", {"keyId": key_id}, "... on ApiKey { revokedAt expiresAt }")
    listed = await world.data("{ apiKeys { nodes { id } } }", world.callers["a"])

    assert stranger["code"] == "NOT_FOUND"
    assert (revoked["revokedAt"], revoked["expiresAt"]) == (world.clock.now, world.clock.now + HOUR)
    assert key_id not in [node["id"] for node in listed["apiKeys"]["nodes"]]


async def test_a_deleted_tenants_grants_end(world: World) -> None:
    """R53."""
    active = await world.create_grant()
    scheduled = await world.create_grant(startsAt=world.clock.now + HOUR)
    deleted = await world.mutate("deleteTenant", {"tenantId": "a"}, "... on Tenant { id deletedAt }")
    grants = (await world.data("{ grants(all: true) { nodes { id state } } }"))["grants"]["nodes"]
    root = await world.mutate("deleteTenant", {"tenantId": "root"})

    assert (deleted["id"], deleted["deletedAt"]) == ("a", world.clock.now)
    assert {grant["id"]: grant["state"] for grant in grants} == {active["id"]: "ENDED", scheduled["id"]: "CANCELLED"}
    assert (root["code"], root["refusedState"]) == ("INVALID_STATE", "root")
