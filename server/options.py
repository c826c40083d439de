"""From settings to what a node is made of. Apart from the application, which commands without an edge need not wait for."""

from __future__ import annotations

from domain.webhooks.targets import PERMISSIVE, STRICT
from server.secret_key import secret_key_of
from server.settings import Settings
from workers.runtime import RuntimeOptions


def options_of(settings: Settings) -> RuntimeOptions:
    data_dir = settings.data_dir.expanduser()
    return RuntimeOptions(
        lanes=settings.lanes,
        gone_after_misses=settings.gone_after_misses,
        inventory_dir=settings.inventory_dir or data_dir / "inventory",
        scan_seconds=settings.scan_seconds,
        event_days=settings.event_days,
        answer_days=settings.answer_days,
        audit_days=settings.audit_days,
        delivery_days=settings.delivery_days,
        runs_jobs=settings.jobs,
        secret_key=secret_key_of(settings),
        webhook_security=PERMISSIVE if settings.webhook_private_addresses else STRICT,
        webhook_within_s=float(settings.webhook_timeout_seconds),
        webhook_ca_file=settings.webhook_ca_file,
    )
