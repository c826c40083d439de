"""The published OpenAPI documents of the protocol, as a judge of every answer that a test gets.

They are others' work and not part of this project: `EARMARK_TEST_CYCLES_SPEC` names the folder they lie in. Without it
the stories are told all the same, and nobody judges the form of the answers.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import yaml

from domain.amounts import INT64_MAX, INT64_MIN
from domain.instants import read_instant

VARIABLE = "EARMARK_TEST_CYCLES_SPEC"
RUNTIME = "cycles-protocol-v0.yaml"
ADMIN = "cycles-governance-admin-v0.1.25.yaml"
EVIDENCE = "cycles-evidence-v0.2.yaml"

UNDECLARED = frozenset({405, 413, 415, 429})
"""What HTTP itself has to say, and throttling: any operation may answer so, as an `ErrorResponse` (decision 25)."""
CLOSED_TENANT = ("patch", "/v1/admin/tenants/{tenant_id}", 409)
"""The document leaves out what its own rule on closed tenants demands."""
SUBJECT = frozenset({"tenant", "workspace", "app", "workflow", "agent", "toolset"})

_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time")
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or read_instant(value) is not None


@_FORMATS.checks("int64")
def _is_int64(value: object) -> bool:
    return not isinstance(value, int) or INT64_MIN <= value <= INT64_MAX


@dataclass(frozen=True)
class Document:
    """One of the two planes."""

    content: Mapping[str, Any]

    def find(self, method: str, path: str) -> tuple[str, Mapping[str, Any]] | None:
        """The path's template and the operation, the template with the fewest parameters first."""
        for template in sorted(self.content["paths"], key=lambda name: name.count("{")):
            if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", template), path):
                operation = self.content["paths"][template].get(method)
                if operation is not None:
                    return template, operation
        return None

    def validator(self, schema: Mapping[str, Any]) -> jsonschema.Draft202012Validator:
        whole = {**schema, "components": self.content["components"]}
        return jsonschema.Draft202012Validator(whole, format_checker=_FORMATS)

    def schema_of(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        if (reference := response.get("$ref")) is not None:
            response = self.content["components"]["responses"][reference.rpartition("/")[2]]
        schema: Mapping[str, Any] = response["content"]["application/json"]["schema"]
        return schema


@functools.cache
def documents() -> tuple[Document, Document] | None:
    """Runtime and admin plane; None where nobody has named the folder."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    runtime, admin = (Document(_load(Path(folder) / name)) for name in (RUNTIME, ADMIN))
    return runtime, admin


def _load(path: Path) -> Mapping[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: Mapping[str, Any] = yaml.load(path.read_text(), Loader=loader)
    return content


def judge(response: httpx2.Response) -> None:
    """Fails when the answer is not one that the documents allow for its request."""
    known = documents()
    if known is None:
        return
    request = response.request
    document, found = _operation(known, request)
    if found is None:
        assert response.status_code == 404, f"{request.method} {request.url.path} is in no document"
        _validate(document, {"$ref": "#/components/schemas/ErrorResponse"}, response)
        return
    template, operation = found
    declared = operation["responses"].get(str(response.status_code))
    place = (request.method.lower(), template, response.status_code)
    if declared is None:
        allowed = response.status_code in UNDECLARED or place == CLOSED_TENANT
        assert allowed, f"{place} is not declared: {response.text}"
        _validate(document, {"$ref": "#/components/schemas/ErrorResponse"}, response)
        return
    _validate(document, document.schema_of(declared), response)


@functools.cache
def _evidence_document() -> Document | None:
    folder = os.environ.get(VARIABLE)
    return Document(_load(Path(folder) / EVIDENCE)) if folder else None


def judge_envelope(envelope: Mapping[str, Any]) -> None:
    """Fails when an envelope is not one that the document of evidence allows."""
    document = _evidence_document()
    if document is not None:
        validator = document.validator({"$ref": "#/components/schemas/CyclesEvidence"})
        assert [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(envelope)] == []


def _operation(
    known: tuple[Document, Document], request: httpx2.Request
) -> tuple[Document, tuple[str, Mapping[str, Any]] | None]:
    method, path = request.method.lower(), request.url.path
    found = [(document, operation) for document in known if (operation := document.find(method, path)) is not None]
    if len(found) == 2:  # the balances of both planes
        return found[0] if SUBJECT & set(request.url.params) else found[1]
    return found[0] if found else (known[0], None)


def _validate(document: Document, schema: Mapping[str, Any], response: httpx2.Response) -> None:
    problems = list(_problems(document, schema, response.json()))
    asked = f"{response.request.method} {response.request.url}"
    assert not problems, f"{asked} -> {response.status_code} {response.text}: {problems}"


def _problems(document: Document, schema: Mapping[str, Any], body: Any) -> Iterator[str]:
    for error in document.validator(schema).iter_errors(body):
        yield f"{error.json_path}: {error.message[:200]}"
