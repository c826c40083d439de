"""What every change of a webhook has in common: the locked subscription, its owner, what is told of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from domain.budget.events import DONE, AuditEntry
from domain.budget.values import ActorType, Origin
from domain.events import MIRROR
from domain.identity import SYSTEM
from domain.outcomes import InvalidInput, InvalidState, Refusal
from domain.tenancy import refuse_tenant
from domain.webhooks.events import WebhookEvent
from domain.webhooks.subscriptions import SUBSCRIPTIONS_MAX, Subscription
from storage.budget.audit_log import flush_entry
from storage.database import AnyConnection
from storage.events import append_events, read_stream
from storage.identity import get_tenant, is_closed_for_budgets, lock_tenants_shared
from storage.webhooks.subscriptions import Kept, lock_heads, read_ids_of_tenant, read_subscription
from workers.budget.rights import Right
from workers.budget.texts import is_kept, refuse_texts
from workers.ids import IdSource
from workers.registry import Registrar
from workers.request import Caller
from workers.webhooks.guarding import Guard
from workers.webhooks.rights import refuse_one
from workers.webhooks.vault import Vault

METADATA_MAX: Final = 16_384
"""Bytes of what a client keeps beside a subscription."""

CLOSED: Final = InvalidState(state="closed", message="the tenant has been closed")
FULL: Final = InvalidState(state="full", message=f"a tenant has at most {SUBSCRIPTIONS_MAX} webhooks")
NO_KEY: Final = InvalidState(
    state="no-secret-key",
    message="this node has no key to keep secrets with: set EARMARK_SECRET_KEY, alike on every node",
)
OTHER_KEY: Final = InvalidState(
    state="other-secret-key", message="the secrets of this webhook are sealed with another key than this node's"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the desks of webhooks share. `vault` None: this node can neither seal nor open secrets.

    `told` is called after a commit that has made new events, or something to deliver; `changed` after one that has changed
    what subscriptions want.
    """

    registrar: Registrar
    ids: IdSource
    guard: Guard
    vault: Vault | None
    told: Callable[[], None]
    changed: Callable[[], Awaitable[None]]


async def lock_one(connection: AnyConnection, caller: Caller, right: Right, subscription_id: str) -> Kept | Refusal:
    """The subscription under its head, for a change. Refuses NOT_FOUND, ACCESS_DENIED, INVALID_STATE (`closed`)."""
    await lock_heads(connection, [subscription_id])
    kept = await read_subscription(connection, subscription_id)
    if (refusal := refuse_one(caller, right, None if kept is None else kept.subscription)) is not None:
        return refusal
    assert kept is not None, "what is not there was refused"
    return await refuse_closed(connection, kept.subscription.tenant_id) or kept


async def refuse_closed(connection: AnyConnection, owner: str) -> InvalidState | None:
    """A closed tenant's webhooks can be looked at only. Its closing disables them afterwards, under their heads."""
    if owner == SYSTEM:
        return None
    tenant = await get_tenant(connection, owner)
    is_gone = tenant is None or tenant.deleted_at is not None
    return CLOSED if is_gone or await is_closed_for_budgets(connection, owner) else None


async def refuse_owner(connection: AnyConnection, owner: str) -> Refusal | None:
    """Whether the owner may have one more. Its closing waits for whoever asks. Refuses NOT_FOUND, INVALID_STATE."""
    if owner != SYSTEM:
        tenants = await lock_tenants_shared(connection, [owner])
        if (refusal := refuse_tenant(tenants.get(owner))) is not None:
            return refusal
        if await is_closed_for_budgets(connection, owner):
            return CLOSED
    return FULL if len(await read_ids_of_tenant(connection, owner)) >= SUBSCRIPTIONS_MAX else None


async def end_of_mirror(connection: AnyConnection) -> int:
    """Events behind it are later than this moment."""
    _, last = await read_stream(connection, MIRROR)
    return last


async def tell(connection: AnyConnection, ids: IdSource, events: Sequence[WebhookEvent], *, now: int) -> None:
    """The last thing that a transaction does: the streams stay locked until its end."""
    await append_events(connection, [event.publish(ids.new("evt"), at=now) for event in events], recorded_at=now)


async def write_down(
    connection: AnyConnection,
    ids: IdSource,
    operation: str,
    subscription: Subscription,
    origin: Origin,
    *,
    now: int,
    status: int = DONE,
    correlation_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """In the audit log. `operation` is the protocol's name of it."""
    entry = AuditEntry(
        operation=operation,
        recorded_at=now,
        resource_type="webhook",
        resource_id=subscription.subscription_id,
        origin=origin,
        status=status,
        correlation_id=correlation_id,
        metadata=metadata,
    )
    await flush_entry(connection, subscription.tenant_id, ids.new("aud"), entry)


def named(verb: str, origin: Origin) -> str:
    """The protocol has a name of its own for what operators do on their plane."""
    return f"{verb}WebhookSubscription" if origin.actor_type is ActorType.ADMIN else f"{verb}TenantWebhook"


def refuse_unkept(given: Any, signing_secret: str | None) -> InvalidInput | None:
    """Text that cannot be kept, and more metadata than should be. `given` is anything with fields."""
    if (refused := refuse_texts(given)) is not None:
        return refused
    if signing_secret is not None and not is_kept(signing_secret):
        return InvalidInput(field="signing_secret", reason="charset", message="signing_secret holds text that is none")
    return None


def refuse_metadata(metadata: Mapping[str, Any] | None) -> InvalidInput | None:
    if metadata is not None and len(msgspec.json.encode(metadata)) > METADATA_MAX:
        message = f"metadata has at most {METADATA_MAX} bytes"
        return InvalidInput(field="metadata", reason="length", message=message)
    return None
