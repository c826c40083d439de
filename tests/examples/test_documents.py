"""Every operation that an example sends is valid against the printed schema, in a file of its own or within a program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from graphql import GraphQLSchema, build_schema, parse, validate

from tests.examples.programs import EXAMPLES, REPOSITORY

PROGRAMS = {".py", ".sh", ".js", ".jsx", ".mjs", ".ts", ".tsx", ".html"}
SKIPPED = {"node_modules", "dist", "build"}
EMBEDDED = re.compile(r"(`|\"\"\"|'''|'|\")(\s*(?:query|mutation|subscription|fragment)\b[^`]*?\{.*?)\1", re.DOTALL)
"""A text in quotes that begins like a document."""
OPERATIONS = re.compile(r"\b(?:query|mutation|subscription)\s+\w+\s*[({]")


def files() -> list[Path]:
    """Of the small examples."""
    found = (path for path in EXAMPLES.rglob("*") if path.is_file())
    ours = (path for path in found if not SKIPPED & set(path.relative_to(EXAMPLES).parts))
    return sorted(path for path in ours if path.relative_to(EXAMPLES).parts[0] != "dashboard")


def documents(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".graphql":
        yield text
    elif path.suffix in PROGRAMS:
        yield from (found[2] for found in EMBEDDED.finditer(text))


WITH_DOCUMENTS = [path for path in files() if any(documents(path))]


@pytest.fixture(scope="module")
def schema() -> GraphQLSchema:
    return build_schema((REPOSITORY / "schema" / "schema.graphql").read_text())


@pytest.mark.parametrize("path", WITH_DOCUMENTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_document_of_the_examples_is_valid(path: Path, schema: GraphQLSchema) -> None:
    for document in documents(path):
        assert validate(schema, parse(document)) == [], document


def test_the_documents_of_the_dashboard_are_valid_together(schema: GraphQLSchema) -> None:
    """They share fragments."""
    written = [path.read_text() for path in sorted((EXAMPLES / "dashboard").glob("src/**/*.graphql"))]
    assert not written or validate(schema, parse("\n".join(written))) == []


def test_no_operation_is_overlooked() -> None:
    assert {path.parent.name for path in WITH_DOCUMENTS} >= {
        folder.name for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name != "dashboard"
    }, "every example has one at least"
    for path in files():
        if path.suffix in PROGRAMS | {".graphql"}:
            written = OPERATIONS.findall(path.read_text())
            checked = [name for document in documents(path) for name in OPERATIONS.findall(document)]
            assert written == checked, path
