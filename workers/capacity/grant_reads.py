"""Reads of grants (R60, R61): one, pages of them, and what hangs on many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.counts import GrantActivity
from domain.capacity.state import GrantState
from domain.capacity.views import GrantView, InstanceView
from domain.identity import GRANT_ID, POOL_ID, PROJECT_ID, TENANT_ID
from domain.outcomes import InvalidInput, NotFound, Refusal
from domain.paging import LIST_MAX, PAGE_MAX
from domain.shapes import Shape, check_optional_text, check_text
from storage.capacity.activity import read_deleted_projects
from storage.capacity.lookups import get_grant
from storage.capacity.pages import GrantFilter, count_grants, page_grants
from storage.paging import Page, Position
from workers.capacity.current import current_activity, current_members, current_used_ms, grant_view
from workers.capacity.reading import (
    Reading,
    check_flag,
    check_optional_reservation,
    check_page,
    check_term,
    check_word,
    refuse_reader,
)
from workers.request import Caller

_NO_GRANT: Final = NotFound(field="grantId", message="no such grant")


@dataclass(frozen=True, slots=True)
class _Question:
    """A list that may be read: which grants, how many, after which place."""

    chosen: GrantFilter
    first: int
    after: Position | None


class GrantReads(Reading):
    async def grant(self, caller: Caller, *, tenant_id: Any, grant_id: Any) -> GrantView | Refusal:
        """The seed's `get`: the tenant's own grant, or any one for root acting in the root tenant (R60).

        Refuses in this order: INVALID_INPUT, ACCESS_DENIED, NOT_FOUND (another's too).
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            check_text(grant_id, "grantId", GRANT_ID)
        except Shape as shape:
            return shape.refusal
        if denied := caller.principal.refuse(Permission.QUOTAS_READ, tenant_id=tenant_id):
            return denied
        async with self._snapshot() as snapshot:
            found = await get_grant(snapshot.connection, grant_id)
        if found is None or not (caller.principal.is_root or found.grant.tenant_id == tenant_id):
            return _NO_GRANT
        return grant_view(found, snapshot.instants)

    async def grants(self, caller: Caller, **given: Any) -> Page[GrantView] | Refusal:
        """A page of grants, newest first: the tenant's own as grantee, ended and cancelled ones too (R61, F10).

        Takes `tenant_id`; `all_tenants` for root acting in the root tenant, and then `grant_tenant_id` for those of one
        tenant; the filters `state`, `pool_id`, `project_id`, `overlaps_from` with `overlaps_to` (a half-open term);
        `account_id` with `reservation_id` for root only (D46); `first` (200 at most), `after`.
        Refuses in this order: INVALID_INPUT, ACCESS_DENIED.
        """
        question = _question(caller, **given)
        return question if isinstance(question, Refusal) else await self._page(question)

    async def list_grants(
        self, caller: Caller, *, tenant_id: Any, all_tenants: Any = None
    ) -> tuple[GrantView, ...] | Refusal:
        """The seed's `list`: the 1000 newest (R61, D22). Refuses as `grants`."""
        question = _question(caller, tenant_id=tenant_id, all_tenants=all_tenants)
        if isinstance(question, Refusal):
            return question
        return (await self._page(_Question(question.chosen, LIST_MAX, None))).items

    async def count_grants(self, caller: Caller, **given: Any) -> int | Refusal:
        """How many grants `grants` would page through; takes the same."""
        question = _question(caller, **given)
        if isinstance(question, Refusal):
            return question
        async with self._snapshot() as snapshot:
            now, ahead = snapshot.instants.now, snapshot.instants.ahead
            return await count_grants(snapshot.connection, question.chosen, at=now, ahead=ahead)

    # -- what hangs on many grants: views come from a read above, which has checked who may see them -----------------

    async def load_grant_activity(self, views: Sequence[GrantView]) -> dict[str, GrantActivity]:
        """Held, running, stopped and idle slots at the views' instant, by grant id (F5)."""
        if not views:
            return {}
        async with self._moment() as connection:
            return await current_activity(connection, views)

    async def load_used_ms(self, views: Sequence[GrantView]) -> dict[str, int]:
        """Instance-milliseconds that ran inside each grant up to the views' instant, by grant id (R43)."""
        if not views:
            return {}
        async with self._moment() as connection:
            return await current_used_ms(connection, views)

    async def load_instances_of_grants(
        self, views: Sequence[GrantView], *, first: int
    ) -> dict[str, Page[InstanceView]]:
        """The first page of each grant's instances (200 at most), newest first, by grant id; `instances` pages on."""
        if not views:
            return {}
        async with self._moment() as connection:
            return await current_members(connection, views, first=min(first, PAGE_MAX))

    async def load_orphaned(self, views: Sequence[GrantView]) -> frozenset[str]:
        """The grants among these that live on and serve nobody, because their project was deleted (D30)."""
        restricted = [view for view in views if view.grant.project_id and view.grant.is_open_at(view.at)]
        if not restricted:
            return frozenset()
        async with self._asker.database.acquire() as connection:
            deleted = await read_deleted_projects(connection, (view.grant.project_id or "" for view in restricted))
        return frozenset(view.grant.grant_id for view in restricted if view.grant.project_id in deleted)

    async def _page(self, question: _Question) -> Page[GrantView]:
        async with self._snapshot() as snapshot:
            instants = snapshot.instants
            page = await page_grants(
                snapshot.connection,
                question.chosen,
                at=instants.now,
                ahead=instants.ahead,
                first=question.first,
                after=question.after,
            )
        return Page(tuple(grant_view(placed, instants) for placed in page.items), page.positions, page.has_more)


def _question(
    caller: Caller,
    *,
    tenant_id: Any,
    all_tenants: Any = None,
    grant_tenant_id: Any = None,
    state: Any = None,
    pool_id: Any = None,
    project_id: Any = None,
    account_id: Any = None,
    reservation_id: Any = None,
    overlaps_from: Any = None,
    overlaps_to: Any = None,
    first: Any = None,
    after: Any = None,
) -> _Question | Refusal:
    try:
        check_text(tenant_id, "tenantId", TENANT_ID)
        everybody = check_flag(all_tenants, "all")
        grantee = check_optional_text(grant_tenant_id, "grantTenantId", TENANT_ID)
        key = check_optional_reservation(account_id, reservation_id)
        chosen = GrantFilter(
            tenant_id=grantee if everybody else tenant_id,
            key=key,
            state=check_word(state, "state", GrantState),
            pool_id=check_optional_text(pool_id, "poolId", POOL_ID),
            project_id=check_optional_text(project_id, "projectId", PROJECT_ID),
            overlaps=_overlaps(overlaps_from, overlaps_to),
        )
        count, position = check_page(first, after, pattern=GRANT_ID)
    except Shape as shape:
        return shape.refusal
    if denied := refuse_reader(
        caller, Permission.QUOTAS_READ, tenant_id=tenant_id, as_root=everybody or key is not None
    ):
        return denied
    if grantee is not None and not everybody and grantee != tenant_id:
        message = "grants of another tenant are read with all: true"
        return InvalidInput(field="grantTenantId", reason="needs-all", message=message)
    return _Question(chosen, count, position)


def _overlaps(since: Any, until: Any) -> tuple[int, int] | None:
    if since is None and until is None:
        return None
    return check_term(since, until, fields=("overlapsFrom", "overlapsTo"))
