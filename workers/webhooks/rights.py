"""Who may ask what of webhooks (section 7). What is another tenant's looks as if it were not there."""

from __future__ import annotations

from typing import Final

from domain.authority import Permission
from domain.outcomes import AccessDenied, NotFound
from domain.tenancy import is_visible
from domain.webhooks.refusals import NO_WEBHOOK
from domain.webhooks.selectors import refuse_reach
from domain.webhooks.subscriptions import Subscription
from workers.budget.rights import Right, refuse, scope_filter_of
from workers.request import Caller

READ: Final = Right(Permission.WEBHOOKS_READ, Permission.ADMIN_WEBHOOKS_READ)
WRITE: Final = Right(Permission.WEBHOOKS_WRITE, Permission.ADMIN_WEBHOOKS_WRITE)
OPERATE: Final = Right(None, Permission.ADMIN_WEBHOOKS_WRITE)
"""What only operators do, whoever's subscription it is."""
LOOK: Final = Right(None, Permission.ADMIN_WEBHOOKS_READ)


def refuse_at_all(caller: Caller, right: Right) -> AccessDenied | None:
    """Before anything is looked up: whether there is any tenant in which the caller may do this."""
    principal = caller.principal
    if right.own is not None and principal.may(right.own):
        return None
    return refuse(caller, right, principal.tenant_id, as_admin=True)


def refuse_one(caller: Caller, right: Right, subscription: Subscription | None) -> AccessDenied | NotFound | None:
    """NOT_FOUND for what is not there, is another tenant's, or sees beyond the scopes that the key is confined to."""
    if subscription is None or not is_visible(caller.principal, subscription.tenant_id):
        return NO_WEBHOOK
    if (denied := refuse(caller, right, subscription.tenant_id)) is not None:
        return denied
    confined_to = scope_filter_of(caller, subscription.tenant_id)
    return NO_WEBHOOK if refuse_reach(confined_to, subscription.scope_filter) else None
