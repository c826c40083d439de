"""Subscriptions and their heads: locked, read, listed, and written by the desk of webhooks, the one writer of the first.

A deleted subscription stays as a row without secrets until its deliveries have been removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from domain.budget.queries import Place
from domain.webhooks.queries import WebhookQuery, WebhookSort
from domain.webhooks.subscriptions import Change, Health, RetryPolicy, Status, Subscription
from storage.budget.keyset import NUMBER, Column, Listing, Page
from storage.budget.pages import confined
from storage.database import AnyConnection, Row
from storage.paging import like


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What is secret about a subscription, and the name of the key that it is sealed with."""

    key_id: str
    secret: bytes
    headers: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`sealed` is None for a deleted one."""

    subscription: Subscription
    sealed: Sealed | None


_JOINED: Final = "from webhook_subscription s join webhook_head h on h.subscription_id = s.subscription_id"
_SHOWN: Final = """
    s.*, h.status, h.version, h.consecutive_failures, h.is_failing, h.last_triggered_at, h.last_success_at, h.last_failure_at
"""

_LOCK: Final = "select * from webhook_lock($1)"


async def lock_heads(connection: AnyConnection, subscription_ids: Iterable[str]) -> dict[str, Row]:
    """One after another in the order of their ids, so that two who want the same ones wait for each other. Nobody else
    changes these subscriptions, or settles a delivery of theirs, until the end of the transaction."""
    rows = await connection.fetch(_LOCK, sorted(set(subscription_ids)))
    return {row["subscription_id"]: row for row in rows}


_READ: Final = f"select {_SHOWN} {_JOINED} where s.subscription_id = any ($1) and ($2 or s.deleted_at is null)"


async def read_subscriptions(
    connection: AnyConnection, subscription_ids: Iterable[str], *, with_deleted: bool = False
) -> dict[str, Kept]:
    rows = await connection.fetch(_READ, list(subscription_ids), with_deleted)
    return {row["subscription_id"]: kept_of(row) for row in rows}


async def read_subscription(
    connection: AnyConnection, subscription_id: str, *, with_deleted: bool = False
) -> Kept | None:
    found = await read_subscriptions(connection, [subscription_id], with_deleted=with_deleted)
    return found.get(subscription_id)


_OF_TENANT: Final = "select subscription_id from webhook_subscription where tenant_id = $1 and deleted_at is null"


async def read_ids_of_tenant(connection: AnyConnection, tenant_id: str) -> list[str]:
    """The subscriptions that the tenant owns."""
    return [row["subscription_id"] for row in await connection.fetch(_OF_TENANT, tenant_id)]


# -- lists -------------------------------------------------------------------------------------------------------------

# Of a filter that ends with `*` only the whole segments before it are certain (`selectors.refuse_reach`).
_CERTAIN: Final = """case
    when btrim(s.scope_filter) like '%*' then substring(btrim(s.scope_filter) from '^(.*)/[^/]*$')
    else btrim(s.scope_filter)
end"""

WEBHOOKS: Final = Listing(
    f"""{_JOINED}
where s.deleted_at is null
    and ($1::text is null or s.tenant_id = $1)
    and ($2::text is null or h.status = $2)
    and ($3::text is null or $3 = any (s.event_types))
    and ($4::text is null or s.subscription_id ilike $4 or s.url ilike $4)
    and {confined(_CERTAIN, "$5")}
""",
    arguments=5,
    columns={
        WebhookSort.CREATED_AT: Column("s.created_at", NUMBER),
        WebhookSort.URL: Column("s.url"),
        WebhookSort.TENANT_ID: Column("s.tenant_id"),
        WebhookSort.STATUS: Column("h.status"),
        WebhookSort.FAILURES: Column("h.consecutive_failures::bigint", NUMBER),
    },
    id_column="s.subscription_id",
    shown=_SHOWN,
)


async def page_subscriptions(
    connection: AnyConnection,
    query: WebhookQuery,
    *,
    tenant_id: str | None,
    scope_filter: Sequence[str],
    after: Place | None,
    limit: int,
) -> Page[Subscription]:
    """Of one owner, or of all of them. `scope_filter`: what the asking key is confined to."""
    arguments = (
        tenant_id,
        query.status,
        query.event_type,
        like(query.search) if query.search else None,
        list(scope_filter) or None,
    )
    return await WEBHOOKS.fetch(
        connection,
        arguments,
        sort=query.sort_by,
        descending=query.descending,
        after=after,
        limit=limit,
        convert=lambda row: kept_of(row).subscription,
    )


# -- writing -----------------------------------------------------------------------------------------------------------

_NEW: Final = """
insert into webhook_subscription (
    subscription_id, tenant_id, url, event_types, event_categories, name, description, scope_filter, thresholds,
    retry_policy, disable_after_failures, metadata, header_names, sealed_with, sealed_secret, sealed_headers, created_at
) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""
_NEW_HEAD: Final = """
insert into webhook_head (subscription_id, host, status, active_from_at, active_from_place) values ($1, $2, $3, $4, $5)
"""


async def flush_new(
    connection: AnyConnection, subscription: Subscription, sealed: Sealed, *, host: str, place: int
) -> None:
    """`place`: where the mirror ends now. What happens from now on, and lies behind it, is the subscription's."""
    await connection.execute(
        _NEW,
        subscription.subscription_id,
        subscription.tenant_id,
        *_configuration(subscription),
        sealed.key_id,
        sealed.secret,
        sealed.headers,
        subscription.created_at,
    )
    await connection.execute(
        _NEW_HEAD, subscription.subscription_id, host, subscription.status, subscription.created_at, place
    )


_CHANGE: Final = """
update webhook_subscription set
    url = $2, event_types = $3, event_categories = $4, name = $5, description = $6, scope_filter = $7, thresholds = $8,
    retry_policy = $9, disable_after_failures = $10, metadata = $11, header_names = $12, sealed_with = $13,
    sealed_secret = $14, sealed_headers = $15, updated_at = $16
where subscription_id = $1
"""
_VERSION: Final = "update webhook_head set version = $2, host = $3 where subscription_id = $1"
_RESUME: Final = """
update webhook_head set status = 'ACTIVE', consecutive_failures = 0, is_failing = false, due_at = $2,
    active_from_at = $2, active_from_place = $3
where subscription_id = $1
"""
_STOP: Final = "update webhook_head set status = $2, due_at = null where subscription_id = $1"


async def flush_change(
    connection: AnyConnection, change: Change, sealed: Sealed, *, host: str, now: int, place: int
) -> None:
    """The caller holds the head. Back to ACTIVE, what was queued before goes on, and what happened meanwhile is not its."""
    after = change.after
    await connection.execute(
        _CHANGE,
        after.subscription_id,
        *_configuration(after),
        sealed.key_id,
        sealed.secret,
        sealed.headers,
        after.updated_at,
    )
    await connection.execute(_VERSION, after.subscription_id, after.version, host)
    if change.has_new_status and after.status is Status.ACTIVE:
        await connection.execute(_RESUME, after.subscription_id, now, place)
    elif change.has_new_status:
        await connection.execute(_STOP, after.subscription_id, after.status)


_DISABLE: Final = """
with head as (
    update webhook_head set status = 'DISABLED', due_at = null, version = version + 1 where subscription_id = $1
)
update webhook_subscription set updated_at = $2 where subscription_id = $1
"""


async def flush_disabled(connection: AnyConnection, subscription_id: str, *, now: int) -> None:
    """By itself, or with its tenant. The caller holds the head."""
    await connection.execute(_DISABLE, subscription_id, now)


_DELETE: Final = """
update webhook_subscription set deleted_at = $2, updated_at = $2, sealed_secret = null, sealed_headers = null
where subscription_id = $1
"""


async def flush_deleted(connection: AnyConnection, subscription_id: str, *, now: int) -> None:
    """Its secrets go at once, the rest with retention. The caller holds the head."""
    await connection.execute(_DELETE, subscription_id, now)
    await connection.execute(_STOP, subscription_id, Status.DISABLED)


_SEALED_WITH: Final = """
select subscription_id from webhook_subscription where sealed_with = any ($1) and deleted_at is null
order by subscription_id limit $2
"""
_SEALED_OTHERWISE: Final = """
select count(*) from webhook_subscription where sealed_with <> $1 and deleted_at is null
"""
_SEAL: Final = """
update webhook_subscription set sealed_with = $2, sealed_secret = $3, sealed_headers = $4
where subscription_id = $1 and deleted_at is null
"""


async def page_sealed_with(connection: AnyConnection, key_ids: Sequence[str], *, limit: int) -> list[str]:
    """Subscriptions whose secrets are sealed with one of these keys."""
    return [row["subscription_id"] for row in await connection.fetch(_SEALED_WITH, key_ids, limit)]


async def count_sealed_otherwise(connection: AnyConnection, key_id: str) -> int:
    """Subscriptions whose secrets are sealed with any key but this one."""
    count: int = await connection.fetchval(_SEALED_OTHERWISE, key_id)
    return count


async def flush_sealed(connection: AnyConnection, subscription_id: str, sealed: Sealed) -> None:
    """The same secrets, sealed anew. The caller holds the head."""
    await connection.execute(_SEAL, subscription_id, sealed.key_id, sealed.secret, sealed.headers)


# -- rows --------------------------------------------------------------------------------------------------------------


def _configuration(subscription: Subscription) -> tuple[Any, ...]:
    """From `url` to `header_names`, in the order of the statements."""
    policy = {each.name: getattr(subscription.retry_policy, each.name) for each in fields(RetryPolicy)}
    return (
        subscription.url,
        list(subscription.event_types),
        list(subscription.event_categories),
        subscription.name,
        subscription.description,
        subscription.scope_filter,
        subscription.thresholds,
        policy,
        subscription.disable_after_failures,
        subscription.metadata,
        list(subscription.header_names),
    )


def kept_of(row: Row) -> Kept:
    plain = (
        *("subscription_id", "tenant_id", "url", "name", "description", "scope_filter", "thresholds", "metadata"),
        *("disable_after_failures", "created_at", "updated_at", "version"),
    )
    subscription = Subscription(
        **{name: row[name] for name in plain},
        event_types=tuple(row["event_types"]),
        event_categories=tuple(row["event_categories"]),
        header_names=tuple(row["header_names"]),
        retry_policy=RetryPolicy(**row["retry_policy"]),
        status=Status(row["status"]),
        health=Health(**{each.name: row[each.name] for each in fields(Health)}),
    )
    if row["sealed_secret"] is None:
        return Kept(subscription=subscription, sealed=None)
    sealed = Sealed(key_id=row["sealed_with"], secret=row["sealed_secret"], headers=row["sealed_headers"])
    return Kept(subscription=subscription, sealed=sealed)
