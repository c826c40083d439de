"""From settings to what a node is made of. Apart from the application, which commands without an edge need not wait for."""

from __future__ import annotations

from domain.webhooks.targets import PERMISSIVE, STRICT
from server.secret_key import former_secret_key_of, secret_key_of
from server.settings import Settings, SettingsError
from workers.budget.evidence import derive_seed
from workers.runtime import RuntimeOptions


def _seed_of(settings: Settings, secret: bytes | None) -> bytes | None:
    """Raises `SettingsError` where evidence is wanted and nothing is there to sign it with."""
    if settings.evidence_server_id is None:
        return None
    if settings.evidence_key is not None:
        return bytes.fromhex(settings.evidence_key)
    if secret is None:
        raise SettingsError("EARMARK_EVIDENCE_SERVER_ID needs EARMARK_EVIDENCE_KEY or EARMARK_SECRET_KEY to sign with")
    return derive_seed(secret)


def options_of(settings: Settings) -> RuntimeOptions:
    data_dir = settings.data_dir.expanduser()
    secret = secret_key_of(settings)
    return RuntimeOptions(
        lanes=settings.lanes,
        gone_after_misses=settings.gone_after_misses,
        inventory_dir=settings.inventory_dir or data_dir / "inventory",
        scan_seconds=settings.scan_seconds,
        event_days=settings.event_days,
        answer_days=settings.answer_days,
        audit_days=settings.audit_days,
        evidence_days=settings.evidence_days,
        delivery_days=settings.delivery_days,
        runs_jobs=settings.jobs,
        evidence_server_id=settings.evidence_server_id,
        evidence_seed=_seed_of(settings, secret),
        secret_key=secret,
        former_secret_key=former_secret_key_of(settings),
        webhook_security=PERMISSIVE if settings.webhook_private_addresses else STRICT,
        webhook_within_s=float(settings.webhook_timeout_seconds),
        webhook_ca_file=settings.webhook_ca_file,
    )
