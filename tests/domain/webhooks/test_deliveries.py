"""Attempts, pauses and what a subscription learns of them (section 8.4, scenario 122)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.webhooks.deliveries import (
    Attempt,
    Delivery,
    DeliveryStatus,
    health_after,
    is_overdue,
    is_worn_out,
    settle,
)
from domain.webhooks.messages import Trace
from domain.webhooks.subscriptions import MILLION, Health, RetryPolicy, Status, Subscription

T = 1_800_000_000_000
FAILED = Attempt(response_status=500, response_time_ms=7, error="the receiver answered 500")
WENT = Attempt(response_status=204, response_time_ms=3)


def delivery(**changes: Any) -> Delivery:
    given: dict[str, Any] = {
        "subscription_id": "whsub_1",
        "delivery_id": "whdel_1",
        "place": 1,
        "event_id": "evt_1",
        "event_type": "budget.funded",
        "created_at": T,
        "trace": Trace(trace_id="a" * 32),
        **changes,
    }
    return Delivery(**given)


def subscription(**changes: Any) -> Subscription:
    return Subscription(
        subscription_id="whsub_1", tenant_id="acme", url="https://x.example/", event_types=(), created_at=T, **changes
    )


def test_s122_six_attempts_with_the_published_pauses_and_then_no_more() -> None:
    now, current, pauses = T, delivery(), []
    while current.is_open:
        current = settle(current, FAILED, RetryPolicy(), now=now)
        if current.next_attempt_at is not None:
            pauses.append(current.next_attempt_at - now)
            now = current.next_attempt_at
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000]
    assert (current.status, current.attempts, current.completed_at) == (DeliveryStatus.FAILED, 6, T + 31_000)
    assert (current.response_status, current.error) == (500, "the receiver answered 500")


def test_a_success_ends_it_at_any_attempt() -> None:
    tried = settle(delivery(), FAILED, RetryPolicy(), now=T)
    done = settle(tried, WENT, RetryPolicy(), now=T + 1_000)
    assert (done.status, done.attempts, done.next_attempt_at, done.error) == (DeliveryStatus.SUCCESS, 2, None, None)


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert settle(delivery(), FAILED, RetryPolicy(max_retries=0), now=T).status is DeliveryStatus.FAILED


def test_only_two_hundreds_are_successes() -> None:
    assert all(Attempt(response_status=status).succeeded for status in (200, 201, 204, 299))
    assert not any(Attempt(response_status=status).succeeded for status in (100, 199, 300, 302, 404, 410, 500, 599))
    assert not Attempt(error="no answer").succeeded


@given(
    initial=st.integers(100, 60_000),
    millionths=st.integers(MILLION, 10 * MILLION),
    most=st.integers(1_000, 3_600_000),
    retry=st.integers(1, 10),
)
def test_pauses_never_shrink_and_never_pass_the_longest(initial: int, millionths: int, most: int, retry: int) -> None:
    policy = RetryPolicy(initial_delay_ms=initial, backoff_millionths=millionths, max_delay_ms=most)
    assert policy.delay_ms(retry) <= policy.delay_ms(retry + 1) <= most
    assert policy.delay_ms(1) == min(initial, most)


def test_pauses_are_exact_for_multipliers_that_are_no_whole_numbers() -> None:
    policy = RetryPolicy(initial_delay_ms=1_000, backoff_millionths=1_500_000, max_delay_ms=3_600_000)
    assert [policy.delay_ms(retry) for retry in range(1, 6)] == [1_000, 1_500, 2_250, 3_375, 5_062]


def test_failures_are_counted_by_delivery_and_forgotten_with_any_success() -> None:
    retrying = settle(delivery(), FAILED, RetryPolicy(), now=T)
    given_up = settle(delivery(), FAILED, RetryPolicy(max_retries=0), now=T)
    went = settle(delivery(), WENT, RetryPolicy(), now=T)
    health = health_after(Health(), retrying, now=T)
    assert (health.consecutive_failures, health.is_failing, health.last_failure_at) == (0, True, T)
    health = health_after(health_after(health, given_up, now=T + 1), given_up, now=T + 2)
    assert (health.consecutive_failures, health.last_triggered_at) == (2, T + 2)
    health = health_after(health, went, now=T + 3)
    assert (health.consecutive_failures, health.is_failing) == (0, False)
    assert (health.last_success_at, health.last_failure_at) == (T + 3, T + 2)


def test_a_subscription_wears_out_at_its_own_number_and_only_once() -> None:
    for failures, expected in ((2, False), (3, True), (4, True)):
        worn = subscription(disable_after_failures=3, health=Health(consecutive_failures=failures))
        assert is_worn_out(worn) is expected
    disabled = subscription(disable_after_failures=3, health=Health(consecutive_failures=3), status=Status.DISABLED)
    assert not is_worn_out(disabled)


def test_what_has_waited_for_more_than_a_day_is_overdue() -> None:
    assert not is_overdue(delivery(), now=T + 86_400_000)
    assert is_overdue(delivery(), now=T + 86_400_001)
