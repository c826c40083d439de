"""One node, put together: the database, the lanes and actors, the desks, the fan-out, the jobs; started and stopped here.

Edges get a `Runtime` and call its desks; tests build one on a database of their own, with a clock of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from domain.capacity.state import CapacityState
from domain.terms import SECOND_MS
from domain.webhooks.targets import STRICT, Security
from storage.database import Database
from storage.events import Outbox
from workers import measures
from workers.actor import Directory
from workers.announcing import Announcer
from workers.authority import Authenticator, ensure_root
from workers.budget.asking import BudgetAsker
from workers.budget.audit_log import AuditLog
from workers.budget.bulk import BulkDesk
from workers.budget.burning import BurnJob
from workers.budget.desk import BudgetDesk
from workers.budget.evidence import Attester, EvidenceReads, Signer
from workers.budget.expiry import ExpiryJob
from workers.budget.loading import TenantBooks
from workers.budget.rates import RatesJob
from workers.budget.reads import BudgetReads
from workers.budget.turn import BudgetTurn
from workers.capacity.asking import CapacityAsker
from workers.capacity.boundaries import BoundaryJob
from workers.capacity.grants import GrantDesk
from workers.capacity.guards import CapacityGuards
from workers.capacity.instances import InstanceDesk
from workers.capacity.meter import MeterJob
from workers.capacity.notices import NoticeDesk, NoticeJob
from workers.capacity.providers.registry import Registry
from workers.capacity.reads import CapacityReads
from workers.capacity.reservations import ReservationDesk
from workers.capacity.scan import ScanJob
from workers.capacity.turn import CapacityTurn
from workers.changes import ChangeBoard
from workers.clock import Clock, DatabaseClock
from workers.events import EventHub
from workers.ids import IdSource
from workers.key_desk import KeyDesk
from workers.lane import Lane, lane_for
from workers.provider_desk import ProviderDesk
from workers.registry import Registrar
from workers.relay import Listener, Relay
from workers.retention import RetentionJob
from workers.schedule import (
    ATTEMPTS,
    BOUNDARIES,
    BURNING,
    CLOSING,
    EXPIRED_KEYS,
    EXPIRY,
    LATENCY,
    METER,
    NOTICES,
    RATES,
    RELAY,
    RESEAL,
    RETENTION,
    SCAN,
    USED_KEYS,
    WEBHOOKS,
    Ran,
    Schedule,
)
from workers.supervisor import Supervisor
from workers.system_events import SystemEvents
from workers.tenancy_desk import TenancyDesk
from workers.turns import Turn, TurnResult
from workers.webhooks.addresses import Addresses
from workers.webhooks.bulk import WebhookBulkDesk
from workers.webhooks.closing import ClosingDesk
from workers.webhooks.courier import Courier
from workers.webhooks.desk import WebhookDesk
from workers.webhooks.guarding import Guard
from workers.webhooks.probing import ProbeDesk
from workers.webhooks.reads import WebhookReads
from workers.webhooks.replaying import ReplayDesk
from workers.webhooks.resealing import ResealJob
from workers.webhooks.sender import ANSWER_WITHIN_S, Sender
from workers.webhooks.thresholds import ThresholdBoard
from workers.webhooks.vault import Vault
from workers.webhooks.writing import Tools

log = logging.getLogger("earmark.runtime")

LANES: Final = 2
"""Writers a node: one keeps a fast disk busy, the second hides a slow flush of the first."""
STREAM_CHECK_S: Final = 0.5
"""How often open streams are held against the keys that are still valid: a revoked key ends its streams within a second."""
STOP_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    lanes: int = LANES
    is_cached: bool = True
    """Whether turns may be decided from memory; False: under locks alone."""
    gone_after_misses: int = 1
    """D13: complete scans in a row that must miss a reservation before it is gone."""
    inventory_dir: Path | None = None
    """The folder that inventories of the kind `file` lie in."""
    scan_seconds: int = 60
    event_days: int = 30
    answer_days: int = 30
    audit_days: int = 400
    evidence_days: int = 400
    delivery_days: int = 14
    runs_jobs: bool = True
    evidence_server_id: str | None = None
    """The public address of the Cycles wire, `/v1` included, which evidence names as its issuer. None: no evidence."""
    evidence_seed: bytes | None = field(default=None, repr=False)
    """The key that evidence is signed with, 32 bytes."""
    secret_key: bytes | None = field(default=None, repr=False)
    """What webhooks' secrets are sealed with, at least 32 bytes. Without one no webhook can be made."""
    former_secret_key: bytes | None = field(default=None, repr=False)
    """What they were sealed with before: still opened, and sealed anew."""
    webhook_security: Security = STRICT
    """What webhooks may do until an operator says otherwise."""
    webhook_within_s: float = ANSWER_WITHIN_S
    webhook_ca_file: Path | None = None


class Runtime:
    """What a node consists of. `start` before the first command; `stop` when no more edge calls come."""

    def __init__(
        self, database: Database, *, clock: Clock | None = None, options: RuntimeOptions | None = None
    ) -> None:
        self.database = database
        self.clock = clock or DatabaseClock()
        self.options = options or RuntimeOptions()
        self.ids = IdSource(self.clock)
        self.node = self.ids.new("node")
        self.supervisor = Supervisor()
        self._lanes: list[Lane] = []
        self._fan_out()
        self._capacity()
        self._budget()
        self._registry()
        self._webhooks()
        self._jobs()

    def _fan_out(self) -> None:
        self.hub = EventHub(self.database)
        self.board = ChangeBoard()
        self.relay = Relay(
            self.database, self.hub, self.board, self.clock, node=self.node, moved=self._streams_have_grown
        )
        self.system_events = SystemEvents(self.database, self.clock, self.ids, node=self.node)
        self.listener = Listener(
            self.database,
            self.hub,
            self.board,
            node=self.node,
            appended=self._streams_have_grown,
            lost=self.system_events.connection_lost,
            restored=self.system_events.connection_restored,
        )
        self.authenticator = Authenticator(self.database, self.clock)

    def _capacity(self) -> None:
        turn = CapacityTurn(self.clock, self.ids)
        self._capacity_lanes = [
            self._lane(f"capacity-{number}", turn, self._committed) for number in range(self.options.lanes)
        ]
        self._lanes.extend(self._capacity_lanes)
        directory: Directory[CapacityState] = Directory(lambda key: lane_for(key, self._capacity_lanes))
        measures.ACTORS.labels(context="capacity").set_function(lambda: len(directory))
        self.asker = CapacityAsker(self.database, directory, self.ids, self.clock)
        self.grants = GrantDesk(self.asker)
        self.instances = InstanceDesk(self.asker, self._committed)
        self.reservations = ReservationDesk(self.asker, gone_after_misses=self.options.gone_after_misses)
        self.guards = CapacityGuards(self.asker, self._committed)
        self.reads = CapacityReads(self.asker)

    def _lane(self, name: str, turn: Turn, committed: Callable[[TurnResult], None]) -> Lane:
        is_cached = self.options.is_cached
        return Lane(name, turn, connect=self.database.connect, committed=committed, is_cached=is_cached)

    def _budget(self) -> None:
        self.thresholds = ThresholdBoard()
        turn = BudgetTurn(self.clock, self.ids, self.thresholds)
        lanes = [self._lane(f"budget-{number}", turn, self._budget_committed) for number in range(self.options.lanes)]
        self._lanes.extend(lanes)
        directory: Directory[TenantBooks] = Directory(lambda key: lane_for(key, lanes))
        measures.ACTORS.labels(context="budget").set_function(lambda: len(directory))
        self.budget_asker = BudgetAsker(self.database, directory, self.ids, self.clock)
        self.budgets = BudgetDesk(self.budget_asker, keys_changed=self.authenticator.forget)
        self.budget_reads = BudgetReads(self.budget_asker)
        self.bulk = BulkDesk(self.budget_asker)
        self.audit_log = AuditLog(self.database, self.ids, self.clock)
        self.evidence_reads = EvidenceReads(self.database, self.clock)
        self.attester: Attester | None = None
        """None where no evidence is given, which is how it is unless it is asked for."""
        if (server_id := self.options.evidence_server_id) is not None:
            assert self.options.evidence_seed is not None, "evidence is signed"
            signer = Signer(self.options.evidence_seed)
            self.attester = Attester(self.database, self.clock, signer, server_id=server_id)

    def _registry(self) -> None:
        self.providers = Registry(inventory_directory=self.options.inventory_dir)
        self.registrar = Registrar(self.database, self.clock, keys_changed=self.authenticator.forget)
        self.tenancy = TenancyDesk(self.registrar, self.ids, close_tenant=self._close_tenant)
        self.keys = KeyDesk(self.registrar, self.ids)
        self.notices = NoticeDesk(self.registrar)
        self.accounts = ProviderDesk(self.registrar, self.ids, validate_settings=self.providers.validate_settings)

    def _webhooks(self) -> None:
        options = self.options
        self._addresses = Addresses()
        self.webhook_guard = Guard(self.registrar, self.ids, self._addresses.resolve, defaults=options.webhook_security)
        secret_key, former = options.secret_key, options.former_secret_key
        self.vault = None if secret_key is None else Vault(secret_key, former=former)
        tools = Tools(
            registrar=self.registrar,
            ids=self.ids,
            guard=self.webhook_guard,
            vault=self.vault,
            told=self._streams_have_grown,
            changed=self._webhooks_have_changed,
        )
        self._sender = Sender(
            self._addresses.resolve, within_s=options.webhook_within_s, ca_file=options.webhook_ca_file
        )
        self.webhooks = WebhookDesk(tools)
        self.webhook_probes = ProbeDesk(tools, self._sender)
        self.webhook_replays = ReplayDesk(tools)
        self.webhook_bulk = WebhookBulkDesk(tools)
        self.webhook_reads = WebhookReads(self.budget_asker)
        self.webhook_closing = ClosingDesk(tools)
        self.courier = Courier(self.database, self.clock, self.supervisor, tools, self._sender)

    def _jobs(self) -> None:
        boundaries, meter = BoundaryJob(self.asker), MeterJob(self.asker)
        expiry = ExpiryJob(self.budget_asker)
        scan = ScanJob(self.asker, self.reservations, self.providers)
        retention = RetentionJob(
            self.database,
            self.clock,
            event_days=self.options.event_days,
            answer_days=self.options.answer_days,
            audit_days=self.options.audit_days,
            evidence_days=self.options.evidence_days,
            delivery_days=self.options.delivery_days,
        )
        announcer = Announcer(self.ids)
        scan_ms = self.options.scan_seconds * SECOND_MS

        async def sweep() -> Ran:
            return Ran(counts={"reservations": await self.relay.sweep_all()})

        async def close_tenants() -> Ran:
            return Ran(counts={"tenants": await self.tenancy.finish_closing()})

        async def note_used_keys() -> Ran:
            return Ran(counts={"keys": await self.authenticator.flush_last_used()})

        async def note_attempts() -> Ran:
            return await self.authenticator.attempts.flush(self.database, self.ids)

        async def tell_of_expired_keys() -> Ran:
            return Ran(counts={"keys": await self.keys.tell_of_expired_keys()})

        self.schedule = Schedule(
            {
                BOUNDARIES: boundaries.run_once,
                EXPIRY: expiry.run_once,
                METER: meter.run_once,
                SCAN: partial(scan.run_once, every_ms=scan_ms if self.options.runs_jobs else 0),
                RELAY: sweep,
                CLOSING: close_tenants,
                WEBHOOKS: self.courier.run_once,
                RESEAL: ResealJob(self.database, self.vault).run_once,
                USED_KEYS: note_used_keys,
                EXPIRED_KEYS: tell_of_expired_keys,
                NOTICES: NoticeJob(self.asker, self.registrar).run_once,
                RATES: RatesJob(self.budget_asker, announcer, self.thresholds).run_once,
                BURNING: BurnJob(self.budget_asker, announcer, self.thresholds).run_once,
                ATTEMPTS: note_attempts,
                LATENCY: self.system_events.run_once,
                RETENTION: retention.run_once,
            },
            self.supervisor,
            every_ms={SCAN: scan_ms},
        )

    async def open(self, *, root_tenant: str = "root", root_key: str | None = None) -> str | None:
        """Make sure of the root tenant and its key, then start. The secret of a root key made here, to be shown once."""
        made = await ensure_root(self.database, root_tenant_id=root_tenant, root_key=root_key, clock=self.clock)
        self.start()
        return made

    def start(self) -> None:
        for lane in self._lanes:
            self.supervisor.keep(lane.name, lane.run)
        self.supervisor.keep("relay", self.relay.run)
        self.supervisor.keep("listener", self.listener.run)
        self.supervisor.keep("streams", self._end_streams_of_revoked_keys)
        self.supervisor.keep("thresholds", partial(self.thresholds.keep_looking, self.database))
        self.supervisor.keep("webhook leases", self.courier.keep_leases)
        if self.options.runs_jobs:
            self.supervisor.keep("webhooks", self.courier.run)
            self.schedule.start()

    def end_streams(self) -> None:
        """Tell every subscriber to resume elsewhere."""
        self.hub.close_all()
        self.board.close_all()

    async def stop(self) -> None:
        """End streams, finish what was asked, hand over its events, and leave nothing behind."""
        self.end_streams()
        at_work = [self.courier.stop(within_s=STOP_WITHIN_S)]
        if self.options.runs_jobs:
            at_work.append(self.schedule.stop(within_s=STOP_WITHIN_S))
        await asyncio.gather(*at_work)
        await asyncio.gather(*(lane.stop(within_s=STOP_WITHIN_S) for lane in self._lanes))
        await self.relay.flush(give_up=True)
        await self.supervisor.stop()
        self._addresses.close()
        self._sender.close()

    def _committed(self, result: TurnResult) -> None:
        self._wake_relay(Outbox.CAPACITY, result)

    def _budget_committed(self, result: TurnResult) -> None:
        self._wake_relay(Outbox.BUDGET, result)

    def _wake_relay(self, outbox: Outbox, result: TurnResult) -> None:
        if result.event_keys or result.changed_keys:
            self.relay.wake(outbox=outbox, event_keys=result.event_keys, changed_keys=result.changed_keys)

    def _streams_have_grown(self) -> None:
        self.courier.wake()

    async def _webhooks_have_changed(self) -> None:
        self.courier.wake()
        await self.thresholds.look(self.database)

    async def _close_tenant(self, tenant_id: str) -> None:
        """A deleted tenant: its budgets first, which no lock of a reservation stands in the way of, then its grants."""
        await self.budgets.close_deleted_tenant(tenant_id)
        await self.webhook_closing.close_tenant(tenant_id)
        await self.reservations.close_tenant(tenant_id)

    async def _end_streams_of_revoked_keys(self) -> None:
        while True:
            await asyncio.sleep(STREAM_CHECK_S)
            used = self.hub.key_ids() | self.board.key_ids()
            if used and (revoked := used - await self.authenticator.still_valid(used)):
                self.hub.close_keys(revoked)
                self.board.close_keys(revoked)


@asynccontextmanager
async def running(
    url: str, *, clock: Clock | None = None, options: RuntimeOptions | None = None
) -> AsyncIterator[Runtime]:
    """A started node on a migrated database."""
    database = await Database.open(url)
    try:
        runtime = Runtime(database, clock=clock, options=options)
        runtime.start()
        try:
            yield runtime
        finally:
            await runtime.stop()
    finally:
        await database.close()
