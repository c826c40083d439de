"""Metered usage: records of the hours that are over, and their totals."""

from __future__ import annotations

from typing import Annotated, Any

import strawberry
from strawberry.scalars import JSON

from domain.capacity import usage
from domain.capacity.metering import METERS
from domain.capacity.usage import UsageGroup
from domain.outcomes import InvalidInput
from schema.context import operation
from schema.failures import failed
from schema.inputs import ALL, own_tenant
from schema.paging import AFTER, FIRST, Connection, connection, take, value
from schema.scalars import Int64, Millis, millis, optional_id

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(UsageGroup, name="UsageGroup", description="What totals are taken apart by. Days are UTC.")


@strawberry.type
class UsageRecord:
    """What one thing used in one UTC hour. The quantity counts slots or instances times their time in the hour."""

    tenant_id: strawberry.ID
    project_id: strawberry.ID | None
    meter: str
    hour_start: Millis
    quantity_ms: Int64
    hours: str = strawberry.field(description="The quantity in hours, a decimal with six places: for display.")
    grant_id: strawberry.ID | None
    instance_id: strawberry.ID | None
    tags: JSON
    written_at: Millis

    @classmethod
    def of(cls, record: usage.UsageRecord) -> UsageRecord:
        return cls(
            tenant_id=strawberry.ID(record.tenant_id),
            project_id=optional_id(record.project_id),
            meter=record.meter,
            hour_start=Millis(record.hour_start),
            quantity_ms=Int64(record.quantity_ms),
            hours=record.hours,
            grant_id=optional_id(record.grant_id),
            instance_id=optional_id(record.instance_id),
            tags=JSON(dict(record.tags)),
            written_at=Millis(record.written_at),
        )


@strawberry.type
class UsageTotal:
    """Records of one meter added up. What was not grouped by is null."""

    meter: str
    quantity_ms: Int64
    hours: str = strawberry.field(description="The quantity in hours, a decimal with six places: for display.")
    records: int
    hour_start: Millis | None
    day_start: Millis | None
    tenant_id: strawberry.ID | None
    project_id: strawberry.ID | None
    grant_id: strawberry.ID | None

    @classmethod
    def of(cls, total: usage.UsageTotal) -> UsageTotal:
        return cls(
            meter=total.meter,
            quantity_ms=Int64(total.quantity_ms),
            hours=total.hours,
            records=total.records,
            hour_start=millis(total.hour_start),
            day_start=millis(total.day_start),
            tenant_id=optional_id(total.tenant_id),
            project_id=optional_id(total.project_id),
            grant_id=optional_id(total.grant_id),
        )


@strawberry.type
class Usage:
    """The usage that was asked for, as records and as totals."""

    chosen: strawberry.Private[dict[str, Any]]
    all_tenants: strawberry.Private[bool]

    @strawberry.field
    async def records(
        self, first: Annotated[int | None, FIRST] = None, after: Annotated[str | None, AFTER] = None
    ) -> Connection[UsageRecord] | None:
        """The records of one tenant, the newest hour first."""
        if self.all_tenants and self.chosen["of_tenant_id"] is None:
            message = "records are read tenant by tenant: name one in ofTenantId, or ask for totals"
            raise failed(InvalidInput(field="ofTenantId", reason="missing", message=message))
        current = operation()
        page = await current.runtime.reads.usage_records(current.caller, first=take(first), after=after, **self.chosen)
        return connection(value(page), UsageRecord.of, after=after)

    @strawberry.field
    async def totals(self, group_by: list[UsageGroup] | None = None) -> list[UsageTotal] | None:
        """Everything added up, for each meter and whatever it is grouped by; hours and days with the newest first."""
        current = operation()
        totals = await current.runtime.reads.usage_totals(
            current.caller, all_tenants=self.all_tenants, group_by=group_by, **self.chosen
        )
        current.take(len(value(totals)))
        return [UsageTotal.of(total) for total in value(totals)]


# -- query -------------------------------------------------------------------------------------------------------------

_METERS = strawberry.argument(description=f"Only these meters, of {', '.join(METERS)}.")
_OF_TENANT = strawberry.argument(description="Another tenant's: for root, acting in the root tenant.")


@strawberry.type
class UsageQuery:
    @strawberry.field
    def usage(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        all_tenants: Annotated[bool, ALL] = False,
        of_tenant_id: Annotated[strawberry.ID | None, _OF_TENANT] = None,
        meters: Annotated[list[str] | None, _METERS] = None,
        from_at: Annotated[Millis | None, strawberry.argument(name="from")] = None,
        to_at: Annotated[Millis | None, strawberry.argument(name="to")] = None,
        project_id: strawberry.ID | None = None,
        grant_id: strawberry.ID | None = None,
    ) -> Usage:
        """Usage of the tenant in the hours that start from `from` until right before `to`."""
        chosen = {
            "tenant_id": own_tenant(tenant_id),
            "of_tenant_id": of_tenant_id,
            "meters": meters,
            "since": from_at,
            "until": to_at,
            "project_id": project_id,
            "grant_id": grant_id,
        }
        return Usage(chosen=chosen, all_tenants=all_tenants)
