"""A PostgreSQL that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storage.embedded import EmbeddedPostgres
from tests.databases import durable_server


@pytest.fixture
def durable_postgres() -> Iterator[EmbeddedPostgres]:
    """A server of this test's own, as it runs in production."""
    with durable_server() as server:
        yield server
