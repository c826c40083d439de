"""The wire's contract: every refusal has a status, the document is valid, and the server keeps to it whatever comes."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import domain
from domain.outcomes import Refusal
from server.rest import openapi
from server.rest.grants import FIELDS, PATH
from server.rest.wire import STATUSES, UNTOLD, refused
from tests.edges.fuzzing import schemathesis
from tests.edges.world import ROOT, World, served


def capacity_refusals() -> set[type[Refusal]]:
    """Every refusal that the desks of capacity can answer with: those of the domain's root and of its capacity part."""
    for module in pkgutil.walk_packages(domain.__path__, "domain."):
        importlib.import_module(module.name)
    kinds = set(_subclasses(Refusal))
    return {kind for kind in kinds if not kind.__module__.startswith(("domain.budget", "domain.webhooks"))}


def _subclasses(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    """Those that their modules have: a dataclass with slots leaves the class it was made from behind."""
    for child in kind.__subclasses__():
        if getattr(sys.modules[child.__module__], child.__name__, None) is child:
            yield child
        yield from _subclasses(child)


def test_every_refusal_of_capacity_has_a_status_and_no_other_does() -> None:
    assert set(STATUSES) == capacity_refusals()
    assert {str(status) for status in STATUSES.values()} <= openapi.ERRORS.keys()


@pytest.mark.parametrize("kind", STATUSES, ids=lambda kind: kind.code)
def test_a_refusal_is_answered_with_its_code_and_what_may_be_told(kind: type[Refusal]) -> None:
    given: dict[str, Any] = {name: f"the {name}" for name in (field.name for field in fields(kind))}
    response = refused(kind(**given))
    assert response.status_code == STATUSES[kind]
    (error,) = json.loads(bytes(response.body)).values()
    assert (error["code"], error["message"]) == (kind.code, "the message")
    told = {name.split("_")[0] for name in given if name != "message"}
    shown = {name.removesuffix("Ids").removesuffix("Id") for name in error.get("details", {})}
    assert shown == (set() if issubclass(kind, UNTOLD) else told)


def test_the_document_is_one() -> None:
    document = openapi.document("1.2.3")
    assert document["openapi"].startswith("3.1")
    assert document["paths"].keys() == {f"{PATH}/{method}" for method in ("create", "get", "list", "end")}
    for item in document["paths"].values():
        Draft202012Validator.check_schema(item["post"]["requestBody"]["content"]["application/json"]["schema"])
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_document_names_the_seeds_fields_and_nothing_else() -> None:
    create = openapi.document("0")["paths"][f"{PATH}/create"]["post"]["requestBody"]["content"]["application/json"]
    required, optional = FIELDS["create"]
    assert create["schema"]["properties"].keys() == required | optional
    assert set(create["schema"]["required"]) == required
    assert create["schema"]["properties"]["slots"]["maximum"] == 100_000
    assert create["schema"]["properties"]["accountId"]["pattern"] == "^pacct_[0-9a-hjkmnp-tv-z]{26,52}$"


async def test_the_server_serves_it(world: World) -> None:
    response = await world.client.get("/openapi.json")
    assert response.json() == openapi.document(response.json()["info"]["version"])


@pytest.mark.timeout(300)
async def test_whatever_is_sent_the_server_keeps_to_the_document(world: World, tmp_path: Path) -> None:
    """schemathesis, bounded and seeded: no 500, no status, header, content type or body that the document lacks, nothing
    taken that it forbids, nothing without a key."""
    async with served(world) as address:
        key = ("X-API-Key", world.secrets[ROOT])
        await schemathesis(tmp_path, f"{address}/openapi.json", *OPTIONS, key=key)


OPTIONS = (
    *("--max-examples", "25", "--phases", "examples,coverage,fuzzing"),
    # A random tenant is denied and a random term is in the past: acceptable in form, and refused all the same.
    *("--exclude-checks", "positive_data_acceptance"),
)
