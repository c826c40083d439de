"""One capacity reservation in memory, asked in the words of the rules: total 10, now = B, tenants A and B."""

from __future__ import annotations

from typing import Any

from domain.capacity.boundaries import advance
from domain.capacity.commands import (
    AmendGrant,
    AttachInstance,
    CloseTenant,
    CreateGrant,
    DeleteInstance,
    EndGrant,
    MissReservation,
    ObserveReservation,
    PlaceInstance,
    StartInstance,
    StopInstance,
    Surroundings,
)
from domain.capacity.grants import decide_amend, decide_close_tenant, decide_create, decide_end
from domain.capacity.observation import decide_miss, decide_observe
from domain.capacity.placement import decide_attach, decide_delete, decide_place, decide_start, decide_stop
from domain.capacity.scan import ReportedReservation
from domain.capacity.state import Billing, CapacityState, Grant, Instance, Reservation, ReservationStatus, Segment
from domain.outcomes import Accepted, Refusal

B = 1_800_000_000_000
H = 3_600_000
M = 60_000

AROUND = Surroundings(
    platform_tenant_id="root",
    tenants=frozenset({"A", "B"}),
    projects={"pA": "A", "qA": "A", "pB": "B"},
    offers=frozenset({("pool", "*")}),
    accounts={"account": "gcp"},
    pools=frozenset({"pool", "other"}),
)


class World:
    """Every method applies what is due, decides, and returns the answer or the refusal."""

    def __init__(self, total: int = 10, *, around: Surroundings = AROUND) -> None:
        self.around = around
        self.now = B
        self.segments: dict[tuple[str, int], Segment] = {}
        self.events: list[tuple[str, int, str]] = []
        self._made = 0
        self.state = CapacityState(
            Reservation(
                key="account/reservation",
                account_id="account",
                reservation_id="reservation",
                provider="gcp",
                flavor="gpu",
                region="west",
                total=total,
                status=ReservationStatus.READY,
                created_at=0,
                pool_id="pool",
            )
        )

    def create(self, slots: int, starts_at: int, ends_at: int, *, tenant: str = "A", project: str | None = None) -> Any:
        return self._decide(
            decide_create,
            CreateGrant(
                grant_id=self._id("g"),
                account_id="account",
                reservation_id="reservation",
                grant_tenant_id=tenant,
                project_id=project,
                slots=slots,
                starts_at=starts_at,
                ends_at=ends_at,
                created_by="key",
            ),
        )

    def end(self, grant: Grant) -> Any:
        return self._decide(decide_end, EndGrant(grant_id=grant.grant_id))

    def amend(self, grant: Grant, *, version: int | None = None, **changes: Any) -> Any:
        expected = grant.version if version is None else version
        return self._decide(decide_amend, AmendGrant(grant_id=grant.grant_id, expected_version=expected, **changes))

    def place(self, tenant: str = "A", *, project: str | None = None) -> Any:
        command = PlaceInstance(
            instance_id=self._id("i"), tenant_id=tenant, project_id=project or f"p{tenant}", name="x"
        )
        return self._decide(decide_place, command)

    def attach(self, tenant: str = "A", *, billing: Billing = Billing.NORMAL) -> Any:
        command = AttachInstance(
            instance_id=self._id("i"), tenant_id=tenant, project_id=f"p{tenant}", name="x", billing=billing
        )
        return self._decide(decide_attach, command)

    def start(self, instance: Instance) -> Any:
        return self._decide(decide_start, StartInstance(instance_id=instance.instance_id))

    def stop(self, instance: Instance) -> Any:
        return self._decide(decide_stop, StopInstance(instance_id=instance.instance_id))

    def delete(self, instance: Instance) -> Any:
        return self._decide(decide_delete, DeleteInstance(instance_id=instance.instance_id))

    def close(self, tenant: str, *, deleted_at: int | None = None) -> Any:
        advance(self.state, self.now)
        command = CloseTenant(tenant_id=tenant, deleted_at=self.now if deleted_at is None else deleted_at)
        return self._kept(decide_close_tenant(self.state, command, now=self.now))

    def report(self, total: int, *, in_use: int | None = None, ready: bool = True) -> Any:
        advance(self.state, self.now)
        reported = ReportedReservation(
            reservation_id="reservation", flavor="gpu", region="west", total=total, in_use=in_use, ready=ready
        )
        command = ObserveReservation(account_id="account", provider="gcp", reported=reported)
        return self._kept(decide_observe(self.state, command, now=self.now))

    def miss(self, *, after: int = 1) -> Any:
        advance(self.state, self.now)
        return self._kept(decide_miss(self.state, MissReservation(gone_after_misses=after), now=self.now))

    def at(self, instant: int) -> World:
        """Move the clock and apply what is due."""
        self.now = instant
        advance(self.state, instant)
        self._keep()
        return self

    @property
    def figures(self) -> tuple[int, int, int]:
        """(U, unused granted slots, F)."""
        return self.state.in_use, self.state.unused_granted, self.state.free

    def ran(self, instance: Instance, mode: str, *, until: int) -> int:
        """Running milliseconds under one mode."""
        mine = (segment for (owner, _), segment in self.segments.items() if owner == instance.instance_id)
        return sum((s.to_at or until) - s.from_at for s in mine if s.mode == mode)

    def types(self, grant: Grant) -> list[str]:
        return [kind for kind, _, grant_id in self.events if grant_id == grant.grant_id]

    def _decide(self, decide: Any, command: Any) -> Any:
        advance(self.state, self.now)
        return self._kept(decide(self.state, command, around=self.around, now=self.now))

    def _kept(self, outcome: Any) -> Any:
        self._keep()
        assert self.state.free == self._free_as_stated(), "P2: both forms of F"
        if isinstance(outcome, Accepted):
            return outcome.answer
        assert isinstance(outcome, Refusal)
        return outcome

    def _keep(self) -> None:
        changes = self.state.take_changes()
        self.segments.update(changes.segments)
        for event in changes.events:
            kind = event.type.removeprefix("reservation-grant.")
            self.events.append((kind, event.occurred_at, event.payload.get("grantId", "")))

    def _free_as_stated(self) -> int:
        """R19 word for word: total - U - Σ over live grants of (slots - run)."""
        live = [grant for grant in self.state.grants.values() if grant.is_live_at(self.now)]
        unused = sum(grant.slots - self.state.running_in(grant.grant_id) for grant in live)
        return self.state.reservation.total - self.state.in_use - unused

    def _id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made:04}"
