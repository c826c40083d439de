"""Reads of metered usage: records of a tenant, and totals (R46, R47)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from domain.authority import Permission
from domain.capacity.metering import METERS
from domain.capacity.usage import UsageGroup, UsageRecord, UsageTotal
from domain.identity import GRANT_ID, PROJECT_ID, TENANT_ID
from domain.outcomes import InvalidInput, Refusal
from domain.shapes import Shape, check_optional_text, check_text
from storage.capacity.usage import UsageFilter, page_usage, sum_usage
from storage.paging import Page
from workers.capacity.reading import (
    Reading,
    check_flag,
    check_page,
    check_span,
    check_words,
    refuse_reader,
)
from workers.request import Caller

TOTALS_MAX: Final = 5_000
"""Totals of one answer: the hours of a month for each of the meters, with room to spare."""

_SOURCE_KEY: Final = re.compile(r"[A-Za-z0-9._:/-]{1,600}")
"""The form of source keys, as cursors of records carry them."""


class UsageReads(Reading):
    async def usage_records(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        of_tenant_id: Any = None,
        first: Any = None,
        after: Any = None,
        **given: Any,
    ) -> Page[UsageRecord] | Refusal:
        """A page of a tenant's records, the newest hour first; `of_tenant_id` names another tenant, for root acting in
        the root tenant. A position is (hour_start, source_key).

        Takes the filters `meters`, `since` and `until` (hours that start in this half-open stretch), `project_id`,
        `grant_id`; `first` (200 at most), `after`. Refuses in this order: INVALID_INPUT, ACCESS_DENIED.
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            owner = check_optional_text(of_tenant_id, "ofTenantId", TENANT_ID) or tenant_id
            chosen = _filter(owner, **given)
            count, position = check_page(first, after, pattern=_SOURCE_KEY)
        except Shape as shape:
            return shape.refusal
        if denied := refuse_reader(caller, Permission.QUOTAS_READ, tenant_id=tenant_id, as_root=owner != tenant_id):
            return denied
        async with self._moment() as connection:
            return await page_usage(connection, chosen, first=count, after=position)

    async def usage_totals(
        self,
        caller: Caller,
        *,
        tenant_id: Any,
        all_tenants: Any = None,
        of_tenant_id: Any = None,
        group_by: Any = None,
        **given: Any,
    ) -> tuple[UsageTotal, ...] | Refusal:
        """A tenant's usage added up per meter and whatever `group_by` names (hour, day, tenant, project, grant).

        `all_tenants`, or `of_tenant_id` for another tenant, is for root acting in the root tenant. Takes the filters of
        `usage_records`. Refuses in this order: INVALID_INPUT, ACCESS_DENIED, INVALID_INPUT (`too-many-totals`).
        """
        try:
            check_text(tenant_id, "tenantId", TENANT_ID)
            everybody = check_flag(all_tenants, "all")
            owner = check_optional_text(of_tenant_id, "ofTenantId", TENANT_ID)
            groups = _groups(group_by)
            chosen = _filter(owner if everybody else owner or tenant_id, **given)
        except Shape as shape:
            return shape.refusal
        as_root = everybody or chosen.tenant_id != tenant_id
        if denied := refuse_reader(caller, Permission.QUOTAS_READ, tenant_id=tenant_id, as_root=as_root):
            return denied
        async with self._moment() as connection:
            totals = await sum_usage(connection, chosen, groups=groups, limit=TOTALS_MAX + 1)
        if len(totals) > TOTALS_MAX:
            message = f"there are more than {TOTALS_MAX} totals: ask for a shorter stretch or fewer groups"
            return InvalidInput(field="groupBy", reason="too-many-totals", message=message)
        return tuple(totals)


def _filter(
    tenant_id: str | None,
    *,
    meters: Any = None,
    since: Any = None,
    until: Any = None,
    project_id: Any = None,
    grant_id: Any = None,
) -> UsageFilter:
    """Raises `Shape`."""
    first_hour, last_hour = check_span(since, until, fields=("from", "to"))
    return UsageFilter(
        tenant_id=tenant_id,
        meters=check_words(meters, "meters", known=METERS),
        since=first_hour,
        until=last_hour,
        project_id=check_optional_text(project_id, "projectId", PROJECT_ID),
        grant_id=check_optional_text(grant_id, "grantId", GRANT_ID),
    )


def _groups(value: Any) -> Sequence[UsageGroup]:
    """Raises `Shape`."""
    return [UsageGroup(word) for word in check_words(value, "groupBy", known=list(UsageGroup)) or ()]
