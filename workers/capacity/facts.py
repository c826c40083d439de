"""What a node has learnt of registries: tenants, projects, accounts and offers that there are.

Nothing here is trusted: a turn that decides by it has the database check, in the statement that writes the decisions,
that all of it still holds. Only what exists is kept; what does not is asked for every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from domain.capacity.commands import Surroundings
from domain.registry import EVERYBODY
from storage.capacity.books import Wanted

FACTS_MAX: Final = 10_000
"""Entries of one kind; beyond it everything is forgotten and learnt again. Some megabytes."""


class Facts:
    """One object a node."""

    def __init__(self) -> None:
        self._platform_tenant_id: str | None = None
        self._tenants: set[str] = set()
        self._projects: dict[str, str] = {}
        self._accounts: dict[str, str] = {}
        self._offers: set[tuple[str, str]] = set()

    def learn(self, around: Surroundings) -> None:
        """A turn has read this under its locks."""
        self._platform_tenant_id = around.platform_tenant_id or None
        self._tenants |= around.tenants
        self._projects.update(around.projects)
        self._accounts.update(around.accounts)
        self._offers |= around.offers
        if max(len(self._tenants), len(self._projects), len(self._accounts), len(self._offers)) > FACTS_MAX:
            self.forget()

    def forget(self) -> None:
        """Something of it does not hold any more."""
        for kept in (self._tenants, self._projects, self._accounts, self._offers):
            kept.clear()

    def cover(self, wanted: Wanted) -> bool:
        """Whether everything that is wanted is known to exist, and the pools to be offered to the tenants."""
        return (
            self._platform_tenant_id is not None
            and self._tenants >= wanted.tenant_ids
            and self._projects.keys() >= wanted.project_ids
            and self._accounts.keys() >= wanted.account_ids
            and all(self._offer(pool, tenant) for pool in wanted.pool_ids for tenant in wanted.tenant_ids)
        )

    def around(self, wanted: Iterable[Wanted]) -> Surroundings:
        """What is known of all that is wanted, which is covered."""
        together = list(wanted)
        pairs = ((pool, tenant) for each in together for pool in each.pool_ids for tenant in each.tenant_ids)
        return Surroundings(
            platform_tenant_id=self._platform_tenant_id or "",
            tenants=frozenset(tenant for each in together for tenant in each.tenant_ids),
            projects={project: self._projects[project] for each in together for project in each.project_ids},
            accounts={account: self._accounts[account] for each in together for account in each.account_ids},
            offers=frozenset(offer for pair in pairs if (offer := self._offer(*pair)) is not None),
        )

    def _offer(self, pool_id: str, tenant_id: str) -> tuple[str, str] | None:
        """The offer of a pool to everybody, or else to this tenant."""
        for offer in ((pool_id, EVERYBODY), (pool_id, tenant_id)):
            if offer in self._offers:
                return offer
        return None
