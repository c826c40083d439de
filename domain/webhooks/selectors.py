"""Which events a subscription gets: by type or category, narrowed by scope, and never past what its owner may see (8.3).

Types are spelled as the published wire spells them. Events of the capacity context are not the protocol's, which wants
such types to begin with `custom.`: a grant's end is `custom.reservation-grant.ended`, here and in what is delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from domain.budget import envelopes
from domain.budget.scopes import scope_filter_allows
from domain.capacity import boundaries
from domain.identity import SYSTEM
from domain.outcomes import AccessDenied, InvalidInput
from domain.shapes import quoted

CUSTOM: Final = "custom"
_CUSTOM_PREFIX: Final = f"{CUSTOM}."


def published_type(kind: str) -> str:
    """An event's type as subscribers name it."""
    return kind if envelopes.is_published(kind) else _CUSTOM_PREFIX + kind


KNOWN_TYPES: Final = envelopes.PUBLISHED_TYPES | {published_type(kind) for kind in boundaries.TYPES}
"""Every type that can be subscribed to, whether or not it is emitted yet."""

CATEGORIES: Final = (*envelopes.CATEGORIES, CUSTOM)
TENANT_CATEGORIES: Final = frozenset({*envelopes.TENANT_CATEGORIES, CUSTOM})
"""What a tenant sees of itself. The other categories are operators'."""

SCOPE_FILTER_MAX: Final = 1_024
"""Characters of a scope filter: the longest scope path has fewer."""


def is_of_tenant(kind: str) -> bool:
    """Whether a published type is one that the tenant it is about may see."""
    return envelopes.category_of(kind) in TENANT_CATEGORIES


def refuse_selectors(owner: str, types: Sequence[str], categories: Sequence[str]) -> InvalidInput | None:
    """Both invariants of a subscription, on its whole state, whoever writes it and over whichever edge (8.3).

    Refuses in this order: `unknown-type`, `unknown-category`, `no-selector` (invariant 1), `admin-only` (invariant 2: a
    tenant chooses where its events go, so it must not get what only operators may see).
    """
    for kind in types:
        if kind not in KNOWN_TYPES:
            return _refused(
                "event_types", "unknown-type", f"there are no events of the type {quoted(kind)}{_hint(kind)}"
            )
    for category in categories:
        if category not in CATEGORIES:
            message = f"{quoted(category)} is none of {', '.join(CATEGORIES)}"
            return _refused("event_categories", "unknown-category", message)
    if not types and not categories:
        return _refused("event_types", "no-selector", "a subscription needs an event type or an event category")
    if owner == SYSTEM:
        return None
    for kind in types:
        if not is_of_tenant(kind):
            return _refused("event_types", "admin-only", f"only operators may subscribe to {kind}")
    for category in categories:
        if category not in TENANT_CATEGORIES:
            return _refused(
                "event_categories", "admin-only", f"only operators may subscribe to the category {category}"
            )
    return None


def matches(
    *,
    owner: str,
    types: Collection[str],
    categories: Collection[str],
    scope_filter: str | None,
    kind: str,
    subject: str,
    scope: str | None,
) -> bool:
    """Whether an event goes to a subscription. `kind` is its published type, `subject` the tenant it is about.

    The owner's boundary is looked at again here (invariant 2): whatever is stored, nothing of another tenant and nothing
    of the operators' reaches a tenant's receiver.
    """
    if owner != SYSTEM and not (owner == subject and is_of_tenant(kind)):
        return False
    return (kind in types or envelopes.category_of(kind) in categories) and scope_matches(scope_filter, scope)


def scope_matches(scope_filter: str | None, scope: str | None) -> bool:
    """No filter, or a blank one, lets everything through; otherwise an event needs a scope, compared exactly.

    One `*` at the end stands for anything: `tenant:a/*` leaves out `tenant:a` itself. Elsewhere it is a plain sign.
    """
    if scope_filter is None or not scope_filter.strip():
        return True
    if scope is None:
        return False
    if scope_filter.endswith("*"):
        return scope.startswith(scope_filter[:-1])
    return scope == scope_filter


def refuse_reach(confined_to: Sequence[str], scope_filter: str | None) -> AccessDenied | None:
    """A key that is confined to scopes has a say only about subscriptions that see nothing beyond them (section 7).

    Of a filter that ends with `*` only the whole segments before it are certain.
    """
    if not confined_to:
        return None
    certain = (scope_filter or "").strip()
    if certain.endswith("*"):
        certain = certain[:-1].rpartition("/")[0]
    if certain and scope_filter_allows(confined_to, certain):
        return None
    return AccessDenied(message="the key's scope filter does not cover what the subscription gets")


def _hint(kind: str) -> str:
    own = _CUSTOM_PREFIX + kind
    return f": it is called {own}" if own in KNOWN_TYPES else ""


def _refused(field: str, reason: str, message: str) -> InvalidInput:
    return InvalidInput(field=field, reason=reason, message=message)
