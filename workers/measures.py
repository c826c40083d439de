"""What a node counts and times, for `/metrics`. Names are the contract of dashboards and alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_COMMANDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)

TURN_SECONDS: Final = Histogram(
    "earmark_turn_seconds", "Time of a turn, from its lock to its commit", ["context"], buckets=_SECONDS
)
TURN_COMMANDS: Final = Histogram(
    "earmark_turn_commands", "Commands that one turn decided", ["context"], buckets=_COMMANDS
)
TURN_FAILURES: Final = Counter("earmark_turn_failures_total", "Turns that failed, by kind", ["context", "trouble"])
AHEAD: Final = Counter(
    "earmark_turns_ahead_total", "Turns decided from memory, by what the database said", ["context", "verdict"]
)
DECISIONS: Final = Counter("earmark_decisions_total", "Outcomes of commands", ["context", "command", "outcome"])
OVERLOADED: Final = Counter("earmark_overloaded_total", "Commands refused because a mailbox was full", ["context"])
ACTORS: Final = Gauge("earmark_actors", "Actors in memory", ["context"])
EVENTS_RELAYED: Final = Counter("earmark_events_relayed_total", "Events appended to tenants' streams")
EVENTS_DELIVERED: Final = Counter("earmark_events_delivered_total", "Events handed to subscribers")
SUBSCRIBERS: Final = Gauge("earmark_subscribers", "Open subscriptions")
SUBSCRIBERS_CUT: Final = Counter("earmark_subscribers_cut_total", "Subscriptions closed by the server", ["reason"])
JOB_RUNS: Final = Counter("earmark_job_runs_total", "Runs of jobs, by result", ["job", "result"])
JOB_SECONDS: Final = Histogram(
    "earmark_job_seconds", "Time of a run of a job", ["job"], buckets=(*_SECONDS, 30.0, 120.0)
)
BOUNDARIES: Final = Counter("earmark_boundaries_applied_total", "Starts and ends of grants applied by the sweep")
EXPIRED_TENANTS: Final = Counter(
    "earmark_expiry_tenants_total", "Tenants that were asked to give back overdue budget reservations"
)
AUDIT_DROPPED: Final = Counter("earmark_audit_dropped_total", "Failed requests that are not on record", ["reason"])
AUTH_FAILURES: Final = Counter(
    "earmark_auth_failures_total",
    "Requests with a key that is not valid, and whether an event tells of it",
    ["reason", "told"],
)
WEBHOOK_QUEUED: Final = Counter("earmark_webhook_queued_total", "Deliveries queued for webhooks")
WEBHOOK_ATTEMPTS: Final = Counter("earmark_webhook_attempts_total", "Requests to receivers of webhooks", ["result"])
WEBHOOK_SECONDS: Final = Histogram(
    "earmark_webhook_seconds", "Time of a request to a receiver", buckets=(*_SECONDS, 10.0, 30.0)
)
WEBHOOKS_DISABLED: Final = Counter("earmark_webhooks_disabled_total", "Webhooks disabled after too many failures")
USAGE_RECORDS: Final = Counter("earmark_usage_records_total", "Usage records written", ["meter"])


@contextmanager
def turn(context: str, commands: int) -> Iterator[None]:
    """Time one turn and count its commands."""
    started = time.perf_counter()
    yield
    TURN_SECONDS.labels(context=context).observe(time.perf_counter() - started)
    TURN_COMMANDS.labels(context=context).observe(commands)
