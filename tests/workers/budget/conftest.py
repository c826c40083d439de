"""Fixtures of tests about budgets: worlds of `tests.budget_world`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.budget_world import BudgetWorld, budget_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[BudgetWorld]:
    """One node; the tenants root, acme and other, without budgets. The books are audited when the test is over."""
    async with budget_world(database_url) as made:
        yield made
        await made.audit()


@pytest.fixture
async def two_nodes(database_url: str) -> AsyncIterator[BudgetWorld]:
    """The same with two nodes."""
    async with budget_world(database_url, nodes=2) as made:
        yield made
        await made.audit()
