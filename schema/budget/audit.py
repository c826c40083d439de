"""The audit log: what was changed, by whom, on which request. Root only."""

from __future__ import annotations

from typing import Annotated, Final

import strawberry

from domain.amounts import Unit
from domain.budget.queries import WORDS_MAX, AuditQuery, AuditSort, Window
from schema.budget.answers import listed
from schema.context import operation
from schema.paging import AFTER, FIRST, Connection, take
from schema.scalars import Int64, JSONObject, Millis, int64, json_object, optional_id
from storage.budget.audit_log import SeenAuditEntry

OPERATIONS: Final = strawberry.argument(description=f"Any of these, such as fundBudget; at most {WORDS_MAX}.")
RESOURCES: Final = strawberry.argument(description=f"Any of these, such as budget; at most {WORDS_MAX}.")
FROM: Final = strawberry.argument(description="Recorded then or later.")
UNTIL: Final = strawberry.argument(description="Recorded then or before.")
PART: Final = strawberry.argument(
    description="Part of the resource's or the entry's id, of the error or the operation."
)
STATUS_FROM: Final = strawberry.argument(description="Answered with this status of HTTP, or a higher one.")
STATUS_TO: Final = strawberry.argument(description="Answered with this status of HTTP, or a lower one.")
ERRORS: Final = strawberry.argument(description=f"Failed with any of these codes; at most {WORDS_MAX}.")

# -- types -------------------------------------------------------------------------------------------------------------

strawberry.enum(AuditSort, name="AuditSort", description="Equals are in the order of their ids.")


@strawberry.type
class AuditEntry:
    """One request: a change, written together with it, or one of the Cycles wire's that failed."""

    id: strawberry.ID
    tenant_id: strawberry.ID = strawberry.field(description="Whose things were changed.")
    recorded_at: Millis
    operation: str
    status: int = strawberry.field(description="As HTTP has it, whichever edge it came over.")
    error_code: str | None = strawberry.field(description="Null: it was done.")
    resource_type: str | None
    resource_id: str | None
    actor_type: str = strawberry.field(
        description="api_key: a member of the tenant. admin: root. admin_on_behalf_of: root, in the tenant's place. "
        "nobody: the key was not valid."
    )
    key_id: strawberry.ID | None
    source_ip: str | None
    user_agent: str | None
    request_id: str | None
    trace_id: str | None
    scope: str | None
    unit: Unit | None
    amount: Int64 | None
    reason: str | None
    correlation_id: str | None = strawberry.field(description="Entries of one cascade have the same.")
    metadata: JSONObject | None

    @classmethod
    def of(cls, seen: SeenAuditEntry) -> AuditEntry:
        return cls(
            id=strawberry.ID(seen.entry_id),
            tenant_id=strawberry.ID(seen.tenant_id),
            recorded_at=Millis(seen.recorded_at),
            operation=seen.operation,
            status=seen.status,
            error_code=seen.error_code,
            resource_type=seen.resource_type,
            resource_id=seen.resource_id,
            actor_type=seen.actor_type,
            key_id=optional_id(seen.key_id),
            source_ip=seen.source_ip,
            user_agent=seen.user_agent,
            request_id=seen.request_id,
            trace_id=seen.trace_id,
            scope=seen.scope,
            unit=seen.unit,
            amount=int64(seen.amount),
            reason=seen.reason,
            correlation_id=seen.correlation_id,
            metadata=json_object(seen.metadata),
        )


# -- query -------------------------------------------------------------------------------------------------------------


@strawberry.type
class AuditLogQuery:
    @strawberry.field
    async def audit_log(
        self,
        *,
        tenant_id: strawberry.ID | None = None,
        key_id: strawberry.ID | None = None,
        operations: Annotated[list[str] | None, OPERATIONS] = None,
        resource_types: Annotated[list[str] | None, RESOURCES] = None,
        resource_id: strawberry.ID | None = None,
        request_id: str | None = None,
        trace_id: str | None = None,
        error_codes: Annotated[list[str] | None, ERRORS] = None,
        status_from: Annotated[int | None, STATUS_FROM] = None,
        status_to: Annotated[int | None, STATUS_TO] = None,
        recorded_from: Annotated[Millis | None, FROM] = None,
        recorded_to: Annotated[Millis | None, UNTIL] = None,
        search: Annotated[str | None, PART] = None,
        sort_by: AuditSort = AuditSort.RECORDED_AT,
        descending: bool = True,
        first: Annotated[int | None, FIRST] = None,
        after: Annotated[str | None, AFTER] = None,
    ) -> Connection[AuditEntry] | None:
        """What was changed of budgets, policies, tenants and keys, and what failed on the governing half of the Cycles
        wire, the newest first. Root only; without a tenant, everybody's."""
        current = operation()
        chosen = AuditQuery(
            tenant_id=tenant_id,
            key_id=key_id,
            operations=None if operations is None else tuple(operations),
            resource_types=None if resource_types is None else tuple(resource_types),
            resource_id=resource_id,
            request_id=request_id,
            trace_id=trace_id,
            error_codes=None if error_codes is None else tuple(error_codes),
            status_least=status_from,
            status_most=status_to,
            recorded=Window(recorded_from, recorded_to),
            search=search,
            sort_by=sort_by,
            descending=descending,
        )
        found = await current.runtime.budget_reads.audit_log(
            current.caller, query=chosen, limit=take(first), cursor=after
        )
        return listed(found, AuditEntry.of, after=after)
