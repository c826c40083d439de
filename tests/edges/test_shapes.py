"""What a request may look like: numbers, ids, bodies (R2, D23, D24, T12, T19, T20). Whatever is wrong changes nothing."""

from __future__ import annotations

import json
from typing import Any

from server.rest.wire import BODY_MAX
from tests.edges.edge import Edge, Refused, check_documented
from tests.edges.world import HOUR, ROOT, A, B, World, accepted, refused

SAFE = 2**53 - 1

NUMBERS: dict[str, tuple[Any, ...]] = {
    "slots": (0, -1, 100_001, True, False, 1.5, "1", 1e20, None, [1], {}),
    "startsAt": (-1, SAFE + 1, True, 1.5, str(B), 1e20, None),
    "endsAt": (-1, SAFE + 1, True, 0.1, str(B + HOUR), 1e300, None, [B]),
}

TEXTS: dict[str, tuple[Any, ...]] = {
    "tenantId": ("", "root ", " root", "root\n", "rööt", "a" * 129, "a/b", True, 1.5, None, ["root"]),
    "accountId": ("", "acc", f"pacct_{'0' * 25}", f"pacct_{'0' * 53}", f"pacct_{'i' * 26}", f"PACCT_{'0' * 26}", None),
    "reservationId": ("", "a b", "a" * 301, "a\n", "ａ", "a\u0000", None, {}),
    "grantTenantId": ("", "tenant a", "tenant-a\n", "a" * 129, "тенант", None),
    "projectId": ("", "prj_1", f"prj_{'0' * 26}\n", f"prj_{'L' * 26}"),
    "idempotencyKey": ("", "k k", "k\n", "k" * 129, "ключ", "k\u200b", None),
}


async def test_t12_t20_numbers_that_are_none(world: World, edge: Edge) -> None:
    for name, values in NUMBERS.items():
        for value in values:
            answer = refused(await world.create(edge, **{name: value}))
            assert answer.code == "INVALID_INPUT", (name, value)
            assert answer.details["field"] == name, (name, value)
    assert await world.count("capacity_grant") == 0


async def test_d23_ids_are_matched_whole_and_never_trimmed_or_folded(world: World, edge: Edge) -> None:
    for name, values in TEXTS.items():
        for value in values:
            answer = refused(await world.create(edge, **{name: value}))
            assert answer.code == "INVALID_INPUT", (name, value)
            assert answer.details["field"] == name, (name, value)
    assert await world.count("capacity_grant") == 0


async def test_d24_an_integral_number_is_an_integer_however_it_is_written(world: World, edge: Edge) -> None:
    grant = await world.made(edge, slots=3.0, startsAt=float(B), endsAt=(B + HOUR) / 1.0)
    assert (grant["slots"], grant["startsAt"], grant["endsAt"]) == (3, B, B + HOUR)
    assert isinstance(grant["slots"], int)


async def test_the_longest_ids_there_may_be(world: World, edge: Edge) -> None:
    longest = {"accountId": f"pacct_{'0' * 52}", "reservationId": "r" * 300, "projectId": f"prj_{'z' * 52}"}
    assert refused(await world.create(edge, **longest, idempotencyKey="k" * 128)).code == "NOT_FOUND"


async def test_every_field_but_the_project_is_required(world: World, edge: Edge) -> None:
    for name in world.creation():
        missing: dict[str, Any] = {name: ...}
        answer = refused(await world.create(edge, **missing))
        assert answer.code == "INVALID_INPUT", name
        assert answer.details == {"field": name, "reason": "missing"}


async def test_an_unknown_field_is_refused_and_not_passed_over(world: World, edge: Edge) -> None:
    answer = refused(await world.create(edge, tenants=["root"]))
    assert answer.code == "INVALID_INPUT"
    assert answer.details == {"field": "tenants", "reason": "unknown-field"}
    assert await world.count("capacity_grant") == 0


async def test_shapes_of_get_end_and_list(world: World, edge: Edge) -> None:
    for grant_id in ("", "rgrant_1", f"rgrant_{'0' * 26}\n", f"RGRANT_{'0' * 26}", f"rgrant_{'0' * 53}", "ü"):
        wanted = Refused("INVALID_INPUT", {"field": "grantId", "reason": "malformed"})
        assert await world.get(edge, grant_id, by=A) == wanted, grant_id
        assert await world.end(edge, grant_id) == wanted, grant_id
    assert await world.get(edge, f"rgrant_{'0' * 26}", by=A, tenant_id="tenant a") == Refused(
        "INVALID_INPUT", {"field": "tenantId", "reason": "malformed"}
    )
    values: tuple[Any, ...] = ("yes", 1, "true", [])
    for value in values:
        answer = refused(await world.list_grants(edge, by=ROOT, all=value))
        assert answer.code == "INVALID_INPUT", value
        assert answer.details["field"] == "all"


BODIES: tuple[tuple[bytes, str], ...] = (
    (b"[]", "wrong-type"),
    (b'"create"', "wrong-type"),
    (b"null", "wrong-type"),
    (b"7", "wrong-type"),
    (b"{", "malformed"),
    (b"tenantId=root", "malformed"),
    (b'{"tenantId": "root", "tenantId": "tenant-a"}', "malformed"),
    (b'{"slots": NaN}', "malformed"),
    (b'{"slots": Infinity}', "malformed"),
    (b'{"slots": ' + b"9" * 5_000 + b"}", "malformed"),
    (b'{"tenantId": "\xff"}', "malformed"),
    ('{"tenantId": "root"}'.encode("utf-16"), "malformed"),
    (b'{"\\ud800": 1}', "malformed"),
    (b'{"' + b"n" * 200 + b'": 1}', "malformed"),
    (b"[" * 30_000, "malformed"),
    (b'{"a": ' * 9_000, "malformed"),
)


async def test_bodies_that_are_no_json_object_are_refused_as_a_whole(world: World) -> None:
    for body, reason in BODIES:
        response = await _post(world, "create", body)
        assert response.status_code == 400, body[:80]
        error = response.json()["error"]
        assert (error["code"], error["details"]) == ("INVALID_INPUT", {"field": "body", "reason": reason}), body[:80]


async def test_an_empty_body_lacks_the_first_field(world: World) -> None:
    error = (await _post(world, "list", b"")).json()["error"]
    assert error["details"] == {"field": "tenantId", "reason": "missing"}


async def test_half_a_surrogate_pair_is_no_id(world: World) -> None:
    body = json.dumps(world.creation(grantTenantId="\ud800")).encode()
    error = (await _post(world, "create", body)).json()["error"]
    assert error["details"] == {"field": "grantTenantId", "reason": "malformed"}


async def test_a_body_may_not_be_large_whether_it_says_so_or_not(world: World) -> None:
    large = b'{"tenantId": "' + b"a" * BODY_MAX + b'"}'

    async def in_pieces() -> Any:
        for start in range(0, len(large), 1_000):
            yield large[start : start + 1_000]

    for content in (large, in_pieces()):
        response = await _post(world, "create", content)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "BODY_TOO_LARGE"
    padded = json.dumps(world.creation()).encode() + b" " * 60_000
    assert (await _post(world, "create", padded)).status_code == 200


async def test_the_content_type_does_not_matter_but_the_method_and_the_path_do(world: World) -> None:
    headers = {"X-API-Key": world.secrets[ROOT], "Content-Type": "application/x-www-form-urlencoded"}
    path = "/api/compute/reservationGrants"
    made = await world.client.post(f"{path}/create", content=json.dumps(world.creation()), headers=headers)
    assert made.status_code == 200
    wrong_method = await world.client.get(f"{path}/create", headers=headers)
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")
    assert wrong_method.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    nowhere = await world.client.post(f"{path}/amend", content="{}", headers=headers)
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "NOT_FOUND")


async def test_a_text_that_is_not_ours_is_not_shown_back(world: World) -> None:
    """Messages name fields and forms; what a client sent may be long, or somebody's secret."""
    response = await _post(world, "create", json.dumps(world.creation(accountId="secret" * 1_000)).encode())
    assert "secretsecret" not in response.text


async def _post(world: World, method: str, content: Any) -> Any:
    response = await world.client.post(
        f"/api/compute/reservationGrants/{method}", content=content, headers={"X-API-Key": world.secrets[ROOT]}
    )
    check_documented(method, response)
    return response


async def test_null_is_as_good_as_absent_where_a_field_may_be_absent(world: World, edge: Edge) -> None:
    assert "projectId" not in accepted(await world.create(edge, projectId=None))
