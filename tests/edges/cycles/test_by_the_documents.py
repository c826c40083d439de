"""schemathesis, bounded and seeded, with the published documents: whatever is sent, the answers are theirs.

No fault of ours, no status, header, content type or body that a document lacks, nothing taken that it forbids, nothing
without a key. Where the documents contradict each other, or the rules, they are mended first, each time by name.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.edges.cycles.contract import CLOSED_TENANT, VARIABLE, Document, documents
from tests.edges.cycles.world import ACME, ADMIN, BOT, TENANT, TOKENS, World
from tests.edges.fuzzing import schemathesis
from tests.edges.world import served

Json = dict[str, Any]

SETTINGS = "[phases.coverage]\nunexpected-methods = []\n"
"""Two documents share paths, and each knows half of their methods: `test_http` has what happens to others."""
NOT_CHECKED = "positive_data_acceptance"
"""A random budget is not there: acceptable in form, and refused all the same."""
FUZZING = f"--phases fuzzing --exclude-checks {NOT_CHECKED},ignored_auth"
"""Where both kinds of keys do, schemathesis spoils the one that it was not told and leaves the other."""


def mended(document: Document, known: Mapping[str, list[str]]) -> Json:
    """`known`: parameters and fields that are narrowed to things that exist, or hardly anything would be found."""
    content: Json = copy.deepcopy(dict(document.content))
    for template, item in content["paths"].items():
        for method, operation in item.items():
            if not isinstance(operation, dict):
                continue
            for parameter in operation.get("parameters", ()):
                _mend_parameter(parameter, known)
            if (method, template) == CLOSED_TENANT[:2]:
                operation["responses"][str(CLOSED_TENANT[2])] = operation["responses"]["400"]
            if "requestBody" in operation:
                _mend_body(operation["requestBody"], content, known)
    return content


def _mend_parameter(parameter: Json, known: Mapping[str, list[str]]) -> None:
    """An empty one is absent (6.1)."""
    name = parameter.get("name")
    if name in known:
        parameter["schema"] = {"type": "string", "enum": known[name]}
    elif parameter.get("in") == "query":
        parameter["schema"] = {"anyOf": [parameter["schema"], {"type": "string", "maxLength": 0}]}


def _mend_body(body: Json, content: Json, known: Mapping[str, list[str]]) -> None:
    media = body["content"]["application/json"]
    media["schema"] = _lenient(media["schema"], content, known)


def _lenient(schema: Any, content: Json, known: Mapping[str, list[str]]) -> Any:
    """Null for an optional field is as good as none (decision 40). Only in requests: references are written out."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _lenient(content["components"]["schemas"][schema["$ref"].rpartition("/")[2]], content, known)
    found = {
        name: [_lenient(each, content, known) for each in inner]
        if isinstance(inner, list)
        else _lenient(inner, content, known)
        for name, inner in schema.items()
        if name != "properties"
    }
    for name, inner in schema.get("properties", {}).items():
        lenient = {"type": "string", "enum": known[name]} if name in known else _lenient(inner, content, known)
        is_required = name in schema.get("required", ())
        found.setdefault("properties", {})[name] = lenient if is_required else {"anyOf": [lenient, {"type": "null"}]}
    return found


async def run(world: World, folder: Path, document: Json, *options: str, by: str) -> None:
    """Fails with what schemathesis prints."""
    (folder / "document.json").write_text(json.dumps(document, default=str))
    (folder / "schemathesis.toml").write_text(SETTINGS)
    (key,) = world.credentials(by).items()
    async with served(world) as address:
        await schemathesis(folder, "document.json", "--url", address, *options, key=key)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plane", "by", "options"),
    [
        (0, ACME, f"--phases examples,coverage,fuzzing --max-examples 4 --exclude-checks {NOT_CHECKED}"),
        (0, ADMIN, f"{FUZZING} --max-examples 4 --include-path-regex ^/v1/reservations"),
        (1, ADMIN, f"{FUZZING} --max-examples 2"),
        (1, ACME, f"{FUZZING} --max-examples 1 --include-path-regex budgets|policies|^/v1/(webhooks|events|auth)"),
    ],
    ids=["runtime", "runtime-by-operator", "admin", "admin-by-tenant"],
)
async def test_whatever_is_sent_the_wire_keeps_to_its_documents(
    world: World, tmp_path: Path, plane: int, by: str, options: str
) -> None:
    planes = documents()
    if planes is None:
        pytest.skip(f"the protocol's OpenAPI documents are not here: {VARIABLE} names their folder")
    for scope in (TENANT, BOT):
        await world.budget(scope, 2**62, overdraft=5)
    narrowed = (
        {"tenant": [ACME], "reservation_id": [await world.held(1) for _ in range(5)]},
        {"unit": [TOKENS], "url": ["https://127.0.0.1/hook"]},  # names would be looked up
    )
    await run(world, tmp_path, mended(planes[plane], narrowed[plane]), *options.split(), by=by)
