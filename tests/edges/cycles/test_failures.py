"""Every refusal that budgets know is one published (status, error) pair on each plane (sections 5.1 and 5.2)."""

from __future__ import annotations

import pytest

import domain.budget.refusals
from domain.amounts import Unit
from domain.budget.refusals import BudgetNotFound, Denial, Duplicate, RateLimited, UnitMismatch
from domain.outcomes import AccessDenied, Conflict, InvalidInput, InvalidState, NotFound, Refusal
from domain.webhooks.refusals import ReplayInProgress, WebhookUrlInvalid
from server.rest.cycles.failures import ADMIN, RUNTIME, ErrorCode, Plane, failure_of

SHARED = (InvalidInput, AccessDenied, NotFound, InvalidState, Conflict)
GOVERNANCE_ONLY = {Duplicate, InvalidState, Conflict}
"""What no runtime operation can be refused with."""

RUNTIME_STATUS = {
    "INVALID_REQUEST": 400,
    "UNIT_MISMATCH": 400,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "BUDGET_EXCEEDED": 409,
    "BUDGET_FROZEN": 409,
    "BUDGET_CLOSED": 409,
    "OVERDRAFT_LIMIT_EXCEEDED": 409,
    "DEBT_OUTSTANDING": 409,
    "RESERVATION_FINALIZED": 409,
    "IDEMPOTENCY_MISMATCH": 409,
    "MAX_EXTENSIONS_EXCEEDED": 409,
    "TENANT_CLOSED": 409,
    "RESERVATION_EXPIRED": 410,
    "LIMIT_EXCEEDED": 429,
}
"""The pairs of section 5.1 that a refusal can be: 401 and 500 are none."""


def defined() -> set[type[Refusal]]:
    """What the budget context defines. Not by `__subclasses__`: slotted dataclasses leave their first versions there."""
    return {
        kind
        for kind in vars(domain.budget.refusals).values()
        if isinstance(kind, type) and issubclass(kind, Refusal) and kind.__module__ == domain.budget.refusals.__name__
    }


def budget_refusals() -> set[type[Refusal]]:
    """The same, and what every context shares."""
    return (defined() - {Denial}) | set(SHARED)


def test_both_tables_are_total() -> None:
    assert set(ADMIN) == budget_refusals() | {WebhookUrlInvalid, ReplayInProgress}
    assert set(RUNTIME) == budget_refusals() - GOVERNANCE_ONLY


def test_the_runtime_plane_has_the_published_pairs_and_uses_all_of_them() -> None:
    assert {error.value: status for status, error in RUNTIME.values()} == RUNTIME_STATUS


def test_a_live_denial_has_the_word_that_a_preview_gives_as_its_reason() -> None:
    renamed = {BudgetNotFound, domain.budget.refusals.TenantSuspended}
    denials = {kind for kind in defined() if issubclass(kind, Denial)} - {Denial}
    assert len(denials) > 5
    for kind in denials:
        _, error = RUNTIME[kind]
        assert (error.value == kind.code) is (kind not in renamed), kind


def test_a_unit_mismatch_says_where_and_what_would_fit() -> None:
    refusal = UnitMismatch(
        scope="tenant:acme", requested_unit=Unit.USD_MICROCENTS, expected_units=(Unit.TOKENS,), message="no"
    )
    failure = failure_of(refusal, Plane.RUNTIME)
    assert (failure.status, failure.error) == (400, ErrorCode.UNIT_MISMATCH)
    assert failure.details == {
        "scope": "tenant:acme",
        "requested_unit": "USD_MICROCENTS",
        "expected_units": ("TOKENS",),
    }


@pytest.mark.parametrize("refusal", [AccessDenied(), NotFound(field="reservation_id", message="no such thing")])
def test_nothing_is_told_about_what_may_not_be_seen(refusal: Refusal) -> None:
    assert failure_of(refusal, Plane.RUNTIME).details == {}


def test_the_admin_plane_names_what_is_not_there() -> None:
    tenant = failure_of(NotFound(field="tenant_id", message="no such tenant"), Plane.ADMIN)
    assert (tenant.status, tenant.error) == (404, ErrorCode.TENANT_NOT_FOUND)
    budget = failure_of(BudgetNotFound(scope="tenant:acme", message="none"), Plane.ADMIN)
    assert (budget.status, budget.error) == (404, ErrorCode.BUDGET_NOT_FOUND)


def test_throttling_says_how_long() -> None:
    refusal = RateLimited(policy_id="pol_1", limit=1, retry_after_ms=1_500, message="slower")
    failure = failure_of(refusal, Plane.RUNTIME)
    assert (failure.status, failure.error, failure.retry_after_ms) == (429, ErrorCode.LIMIT_EXCEEDED, 1_500)
