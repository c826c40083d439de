"""The desk for webhooks: authority, shape, the URL, then one transaction (8.3). Probes and replays have desks beside it.

`tenant_id` None is the caller's own tenant; another one, and `__system__`, are for root's members. An idempotency key is
optional, and a retry gets the subscription as it is by then. `on_behalf`: an operator acts in a tenant's place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from domain.budget.events import CREATED
from domain.budget.values import Origin
from domain.identity import TENANT_ID, WEBHOOK_ID
from domain.outcomes import Accepted, InvalidInput, Outcome, Refusal
from domain.shapes import Shape, check_text
from domain.webhooks import events
from domain.webhooks.messages import refuse_headers
from domain.webhooks.refusals import WebhookUrlInvalid
from domain.webhooks.selectors import refuse_reach
from domain.webhooks.subscriptions import (
    DEFAULT_FAILURES,
    DEFAULT_RETRIES,
    RetryPolicy,
    Status,
    Subscription,
    decide_update,
    refuse_new,
    refuse_secret,
)
from domain.webhooks.targets import host_of
from storage.database import AnyConnection
from storage.webhooks.deliveries import flush_cancelled
from storage.webhooks.subscriptions import Kept, Sealed, flush_change, flush_deleted, flush_new, read_subscription
from workers.budget.rights import origin_of, refuse, scope_filter_of
from workers.registry import Request, Turn
from workers.request import Caller
from workers.webhooks import rights
from workers.webhooks.secrets import Secrets, changed, new_signing_secret, seal, unseal
from workers.webhooks.vault import VaultError
from workers.webhooks.writing import (
    NO_KEY,
    OTHER_KEY,
    Tools,
    end_of_mirror,
    lock_one,
    named,
    refuse_metadata,
    refuse_owner,
    refuse_unkept,
    tell,
    write_down,
)

CREATE: Final = "webhooks.create"
UPDATE: Final = "webhooks.update"
DELETE: Final = "webhooks.delete"
"""Names of operations, for idempotency keys."""

NO_CONTENT: Final = 204
DELETED: Final = "the subscription was deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedWebhook:
    """`signing_secret` is told this once; None when the request is a retry."""

    subscription: Subscription
    signing_secret: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChanges:
    """A partial update: what is None stays. An empty name, description or scope filter takes it away.

    A header that comes back as its mask keeps its value; all headers are replaced together.
    """

    url: str | None = None
    event_types: tuple[str, ...] | None = None
    event_categories: tuple[str, ...] | None = None
    name: str | None = None
    description: str | None = None
    scope_filter: str | None = None
    thresholds: Mapping[str, Any] | None = None
    retry_policy: RetryPolicy | None = None
    disable_after_failures: int | None = None
    metadata: Mapping[str, Any] | None = None
    status: Status | None = None
    signing_secret: str | None = None
    headers: Mapping[str, str] | None = None

    def shown(self) -> dict[str, Any]:
        """What is given of the fields that can be shown again."""
        apart = ("status", "signing_secret", "headers")
        named = {name: getattr(self, name) for name in self.__slots__ if name not in apart}
        for name in ("event_types", "event_categories"):
            if named[name] is not None:
                named[name] = tuple(dict.fromkeys(named[name]))
        return {name: value for name, value in named.items() if value is not None}


class WebhookDesk:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def create(
        self,
        caller: Caller,
        *,
        url: str,
        event_types: Iterable[str],
        event_categories: Iterable[str] = (),
        tenant_id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        scope_filter: str | None = None,
        thresholds: Mapping[str, Any] | None = None,
        signing_secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy = DEFAULT_RETRIES,
        disable_after_failures: int = DEFAULT_FAILURES,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: Any = None,
        on_behalf: bool = False,
    ) -> Outcome[CreatedWebhook]:
        """Subscribe a URL. Without a secret one is made.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, ACCESS_DENIED (beyond what the key is confined to),
        WEBHOOK_URL_INVALID, INVALID_STATE (`no-secret-key`), CONFLICT (key), NOT_FOUND (the tenant), INVALID_STATE
        (`deleted`, `closed`, `full`).
        """
        owner = caller.principal.tenant_id if tenant_id is None else tenant_id
        if denied := refuse(caller, rights.WRITE, owner):
            return denied
        asked = Subscription(
            subscription_id=self._tools.ids.new("whsub"),
            tenant_id=owner,
            url=url,
            event_types=tuple(dict.fromkeys(event_types)),
            event_categories=tuple(dict.fromkeys(event_categories)),
            name=name or None,
            description=description or None,
            scope_filter=scope_filter or None,
            thresholds=thresholds,
            header_names=tuple(headers or ()),
            retry_policy=retry_policy,
            disable_after_failures=disable_after_failures,
            metadata=metadata,
            created_at=0,
        )
        refused = (
            refuse_unkept(asked, signing_secret)
            or refuse_metadata(metadata)
            or refuse_new(asked, secret=signing_secret, headers=headers or {})
            or refuse_reach(scope_filter_of(caller, owner), asked.scope_filter)
            or await self._refuse_url(url)
        )
        if refused is not None:
            return refused
        try:
            check_text(owner, "tenant_id", TENANT_ID)
            content = {**asdict(asked), "subscription_id": None, **self._veiled(signing_secret, headers)}
            request = self._tools.registrar.request(caller, CREATE, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal
        secrets = Secrets(signing_secret=signing_secret or new_signing_secret(), headers=headers or {})
        return await self._create(request, asked, secrets, origin_of(caller, owner, as_admin=on_behalf))

    async def _create(
        self, request: Request, asked: Subscription, secrets: Secrets, origin: Origin
    ) -> Outcome[CreatedWebhook]:
        vault, ids = self._tools.vault, self._tools.ids
        if vault is None:
            return NO_KEY

        async def decide(turn: Turn) -> Outcome[CreatedWebhook]:
            if (refusal := await refuse_owner(turn.connection, asked.tenant_id)) is not None:
                return refusal
            now = await turn.now()
            made = replace(asked, created_at=now)
            sealed = seal(vault, made.subscription_id, secrets)
            place = await end_of_mirror(turn.connection)
            await flush_new(turn.connection, made, sealed, host=host_of(made.url), place=place)
            await write_down(turn.connection, ids, named("create", origin), made, origin, now=now, status=CREATED)
            await tell(turn.connection, ids, [events.created(made, origin)], now=now)
            return Accepted(CreatedWebhook(subscription=made, signing_secret=secrets.signing_secret))

        outcome = await self._tools.registrar.write(
            request, decide, subject=lambda created: created.subscription.subscription_id, again=_created_before
        )
        if isinstance(outcome, Accepted):
            await self._tools.changed()
        return outcome

    async def update(
        self,
        caller: Caller,
        *,
        webhook_id: Any,
        changes: WebhookChanges,
        idempotency_key: Any = None,
        on_behalf: bool = False,
    ) -> Outcome[Subscription]:
        """Change what is given; the whole of the result must be acceptable. Nothing changed, nothing is told.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, WEBHOOK_URL_INVALID, CONFLICT (key), NOT_FOUND (another
        tenant's too), INVALID_STATE (`closed`, `other-secret-key`), INVALID_INPUT (the result), ACCESS_DENIED (beyond
        what the key is confined to).
        """
        if denied := rights.refuse_at_all(caller, rights.WRITE):
            return denied
        refused = (
            refuse_unkept(changes, changes.signing_secret)
            or refuse_metadata(changes.metadata)
            or refuse_secret(changes.signing_secret)
            or refuse_headers(changes.headers or {})
            or (None if changes.url is None else await self._refuse_url(changes.url))
        )
        if refused is not None:
            return refused
        try:
            wanted = check_text(webhook_id, "webhook_id", WEBHOOK_ID)
            veiled = self._veiled(changes.signing_secret, changes.headers)
            content = {"webhook_id": wanted, **_plain(changes.shown()), "status": changes.status, **veiled}
            request = self._tools.registrar.request(caller, UPDATE, idempotency_key=idempotency_key, content=content)
        except Shape as shape:
            return shape.refusal

        async def decide(turn: Turn) -> Outcome[Subscription]:
            kept = await lock_one(turn.connection, caller, rights.WRITE, wanted)
            if isinstance(kept, Refusal):
                return kept
            owner = kept.subscription.tenant_id
            return await self._update(turn, caller, kept, changes, origin_of(caller, owner, as_admin=on_behalf))

        return await self._write(request, decide, again=_as_it_is)

    async def _update(
        self, turn: Turn, caller: Caller, kept: Kept, changes: WebhookChanges, origin: Origin
    ) -> Outcome[Subscription]:
        before, now = kept.subscription, await turn.now()
        sealed, header_names = kept.sealed, None
        assert sealed is not None, "only a deleted one has none"
        if changes.signing_secret is not None or changes.headers is not None:
            resealed = self._reseal(kept, changes)
            if isinstance(resealed, Refusal):
                return resealed
            sealed = resealed
            header_names = None if changes.headers is None else tuple(changes.headers)
        change = decide_update(
            before,
            changes.shown(),
            status=changes.status,
            has_new_secret=changes.signing_secret is not None,
            header_names=header_names,
            now=now,
        )
        if isinstance(change, InvalidInput):
            return change
        if (denied := refuse_reach(scope_filter_of(caller, before.tenant_id), change.after.scope_filter)) is not None:
            return denied
        if not change.is_nothing:
            place = await end_of_mirror(turn.connection)
            host = host_of(change.after.url)
            await flush_change(turn.connection, change, sealed, host=host, now=now, place=place)
            told = {"changed_fields": list(change.changed_fields), "status": change.after.status.value}
            await write_down(
                turn.connection,
                self._tools.ids,
                named("update", origin),
                change.after,
                origin,
                now=now,
                metadata=told,
            )
            await tell(turn.connection, self._tools.ids, [events.changed(change, origin)], now=now)
        return Accepted(change.after)

    def _reseal(self, kept: Kept, changes: WebhookChanges) -> Sealed | Refusal:
        vault = self._tools.vault
        if vault is None:
            return NO_KEY
        try:
            secrets = changed(unseal(vault, kept), signing_secret=changes.signing_secret, headers=changes.headers)
        except VaultError:
            return OTHER_KEY
        return secrets if isinstance(secrets, InvalidInput) else seal(vault, kept.subscription.subscription_id, secrets)

    async def delete(
        self, caller: Caller, *, webhook_id: Any, idempotency_key: Any = None, on_behalf: bool = False
    ) -> Outcome[Subscription]:
        """For good. What waits is not sent any more. The answer is the subscription as it was.

        Refuses in this order: ACCESS_DENIED, INVALID_INPUT, CONFLICT (key), NOT_FOUND, INVALID_STATE (`closed`).
        """
        if denied := rights.refuse_at_all(caller, rights.WRITE):
            return denied
        try:
            wanted = check_text(webhook_id, "webhook_id", WEBHOOK_ID)
            request = self._tools.registrar.request(
                caller, DELETE, idempotency_key=idempotency_key, content={"webhook_id": wanted}
            )
        except Shape as shape:
            return shape.refusal

        async def decide(turn: Turn) -> Outcome[Subscription]:
            kept = await lock_one(turn.connection, caller, rights.WRITE, wanted)
            if isinstance(kept, Refusal):
                return kept
            subscription = kept.subscription
            origin, now = origin_of(caller, subscription.tenant_id, as_admin=on_behalf), await turn.now()
            await delete_one(turn.connection, subscription, now=now)
            operation = named("delete", origin)
            await write_down(
                turn.connection, self._tools.ids, operation, subscription, origin, now=now, status=NO_CONTENT
            )
            await tell(turn.connection, self._tools.ids, [events.deleted(subscription, origin)], now=now)
            return Accepted(subscription)

        return await self._write(request, decide, again=_as_it_was)

    async def _write(
        self,
        request: Request,
        decide: Callable[[Turn], Awaitable[Outcome[Subscription]]],
        *,
        again: Callable[[AnyConnection, str], Awaitable[Subscription | None]],
    ) -> Outcome[Subscription]:
        outcome = await self._tools.registrar.write(
            request, decide, subject=lambda subscription: subscription.subscription_id, again=again
        )
        if isinstance(outcome, Accepted):
            await self._tools.changed()
        return outcome

    async def _refuse_url(self, url: str) -> WebhookUrlInvalid | None:
        found = await self._tools.guard.check_url(url)
        return found if isinstance(found, WebhookUrlInvalid) else None

    def _veiled(self, signing_secret: str | None, headers: Mapping[str, str] | None) -> dict[str, Any]:
        """Secrets as they may be compared by a fingerprint that lies in the database."""
        vault = self._tools.vault
        if vault is None:
            return {}
        return {
            "signing_secret": None if signing_secret is None else vault.digest(signing_secret),
            "headers": None if headers is None else {name: vault.digest(value) for name, value in headers.items()},
        }


async def delete_one(connection: AnyConnection, subscription: Subscription, *, now: int) -> None:
    """The caller holds the head."""
    await flush_cancelled(connection, [subscription.subscription_id], error=DELETED, now=now)
    await flush_deleted(connection, subscription.subscription_id, now=now)


async def _created_before(connection: AnyConnection, subscription_id: str) -> CreatedWebhook | None:
    subscription = await _as_it_is(connection, subscription_id)
    return None if subscription is None else CreatedWebhook(subscription=subscription, signing_secret=None)


async def _as_it_is(connection: AnyConnection, subscription_id: str) -> Subscription | None:
    kept = await read_subscription(connection, subscription_id)
    return None if kept is None else kept.subscription


async def _as_it_was(connection: AnyConnection, subscription_id: str) -> Subscription | None:
    """A retry of a deletion is told what was deleted."""
    kept = await read_subscription(connection, subscription_id, with_deleted=True)
    return None if kept is None else kept.subscription


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """As a fingerprint takes it."""
    return {name: asdict(value) if isinstance(value, RetryPolicy) else value for name, value in given.items()}
