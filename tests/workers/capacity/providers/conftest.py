from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workers.capacity.providers.compute_server import ComputeServer


@pytest.fixture
def compute() -> Iterator[ComputeServer]:
    server = ComputeServer()
    yield server
    server.close()
