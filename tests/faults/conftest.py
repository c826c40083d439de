"""A PostgreSQL that a test may kill."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from storage.embedded import EmbeddedPostgres
from tests.databases import new_home


@pytest.fixture
def durable_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own, as it runs in production."""
    home = new_home()
    try:
        with EmbeddedPostgres(home) as server:
            yield server
    finally:
        shutil.rmtree(home, ignore_errors=True)
