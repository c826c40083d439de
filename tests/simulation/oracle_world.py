"""The naive model's world: who exists, what happened, and how time is applied.

Set-up, look-ups by full scan, billing segments, event streams, and the boundaries (R15, R16, R30-R37). The commands
are built on top of it. Every command names its `now`; R3's floor makes it never run backwards on a reservation.
"""

from __future__ import annotations

from tests.simulation.oracle_rows import (
    Account,
    Event,
    Figures,
    Grant,
    Instance,
    Outcome,
    Pool,
    Project,
    Reservation,
    ReservationKey,
    Segment,
    Tenant,
    Usage,
    age,
    crockford,
    preference,
    slots_at,
    state_of,
)


class World:
    """Everything the model remembers, in plain dicts and lists."""

    def __init__(self, root_tenant_id: str = "root") -> None:
        self.root_tenant_id = root_tenant_id
        self.tenants: dict[str, Tenant] = {root_tenant_id: Tenant(root_tenant_id)}
        self.projects: dict[str, Project] = {}
        self.accounts: dict[str, Account] = {}
        self.pools: dict[str, Pool] = {}
        self.reservations: dict[ReservationKey, Reservation] = {}
        self.grants: dict[str, Grant] = {}
        self.keys: dict[str, tuple[str, tuple[object, ...]]] = {}  # key -> grant id, what was asked (R6)
        self.instances: dict[str, Instance] = {}
        self.segments: list[Segment] = []
        self.events: dict[str, list[Event]] = {}
        self.usage: list[Usage] = []
        self.placements: list[dict[str, object]] = []
        self._numbers: dict[str, int] = {}

    # --- set-up -------------------------------------------------------------------------------------------------

    def add_tenant(self, tenant_id: str) -> None:
        self.tenants[tenant_id] = Tenant(tenant_id)

    def add_project(self, project_id: str, *, tenant_id: str) -> None:
        self.projects[project_id] = Project(project_id, tenant_id)

    def add_account(self, account_id: str, *, provider: str = "gcp") -> None:
        self.accounts[account_id] = Account(account_id, provider)

    def add_pool(self, pool_id: str, *, offered_to: set[str] | None = None) -> None:
        self.pools[pool_id] = Pool(pool_id, set(offered_to or ()))

    def add_reservation(
        self,
        account_id: str,
        reservation_id: str,
        *,
        total: int,
        pool_id: str | None,
        flavor: str = "flavor",
        region: str = "region",
        status: str = "ready",
    ) -> None:
        self.reservations[(account_id, reservation_id)] = Reservation(
            account_id=account_id,
            reservation_id=reservation_id,
            flavor=flavor,
            region=region,
            provider=self.accounts[account_id].provider,
            total=total,
            status=status,
            pool_id=pool_id,
        )

    # --- look-ups, all by full scan -----------------------------------------------------------------------------

    def grants_on(self, reservation: Reservation) -> list[Grant]:
        return [grant for grant in self.grants.values() if grant.reservation_key == reservation.key]

    def live_on(self, reservation: Reservation, now: int) -> list[Grant]:
        """Grants in term at `now`, in the order of R27."""
        live = [grant for grant in self.grants_on(reservation) if state_of(grant, now) == "active"]
        return sorted(live, key=preference)

    def pending_on(self, reservation: Reservation, now: int) -> list[Grant]:
        """Grants scheduled or active at `now`, in the order of R16."""
        pending = [grant for grant in self.grants_on(reservation) if state_of(grant, now) in ("scheduled", "active")]
        return sorted(pending, key=preference)

    def attached_to(self, reservation: Reservation) -> list[Instance]:
        return [
            instance
            for instance in self.instances.values()
            if instance.reservation_key == reservation.key and instance.state != "deleted"
        ]

    def members_of(self, grant: Grant) -> list[Instance]:
        """held(g) of R18: its not-deleted instances, running or stopped; oldest first."""
        members = [instance for instance in self.instances.values() if instance.grant_id == grant.grant_id]
        return sorted(members, key=age)

    def serves(self, grant: Grant, at: int, *, tenant_id: str, project_id: str | None) -> bool:
        """R26, D30: the tenant matches; a restricted grant serves its project as long as that project lives."""
        if grant.tenant_id != tenant_id:
            return False
        if grant.project_id is None:
            return True
        deleted_at = self.projects[grant.project_id].deleted_at
        return grant.project_id == project_id and (deleted_at is None or at <= deleted_at)

    def is_offered(self, pool_id: str, tenant_id: str) -> bool:
        """R8: an unknown or deleted tenant is offered nothing."""
        tenant = self.tenants.get(tenant_id)
        offered_to = self.pools[pool_id].offered_to
        return tenant is not None and tenant.deleted_at is None and bool({tenant_id, "*"} & offered_to)

    def _figures(self, reservation: Reservation, now: int) -> Figures:
        """R18, R19, D16, and R20 as an assertion."""
        running = [instance for instance in self.attached_to(reservation) if instance.state == "running"]
        live = self.live_on(reservation, now)
        used = len(running) + reservation.external_in_use
        unused = 0
        for grant in live:
            unused += grant.slots - len([instance for instance in running if instance.grant_id == grant.grant_id])
        free = reservation.total - used - unused
        inside = {grant.grant_id for grant in live}
        outside = len([instance for instance in running if instance.grant_id not in inside])
        committed = sum(slots_at(grant, now) for grant in live)
        closed_form = reservation.total - outside - reservation.external_in_use - committed
        assert free == closed_form, (free, closed_form)
        return Figures(total=reservation.total, used=used, unused=unused, free=free)

    def figures(self, now: int, account_id: str, reservation_id: str) -> Figures:
        """T, U, the idle granted slots and F of one reservation at `now` (F may be negative: R21)."""
        reservation = self.reservations[(account_id, reservation_id)]
        return self._figures(reservation, self._open(now, reservation))

    # --- events and segments ------------------------------------------------------------------------------------

    def _next_number(self, kind: str) -> int:
        """1, 2, 3 for each kind, so that a late event does not change the id of a grant (P3)."""
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return self._numbers[kind]

    def _publish(self, tenant_id: str, event_type: str, *, occurred_at: int, payload: dict[str, object]) -> None:
        stream = self.events.setdefault(tenant_id, [])
        event_id = f"evt_{crockford(self._next_number('event'))}"
        stream.append(Event(tenant_id, len(stream) + 1, event_id, event_type, occurred_at, payload))

    def _publish_grant(self, grant: Grant, change: str, *, occurred_at: int) -> None:
        """R62: the grantee's stream; no account, no reservation (D46); `reason` only when the reservation is gone."""
        payload: dict[str, object] = {"grantId": grant.grant_id, "poolId": grant.pool_id}
        if grant.project_id is not None:
            payload["projectId"] = grant.project_id
        payload.update(slots=grant.slots, startsAt=grant.starts_at, endsAt=grant.ends_at)
        if grant.ended_reason is not None:
            payload["reason"] = grant.ended_reason
        self._publish(grant.tenant_id, f"reservation-grant.{change}", occurred_at=occurred_at, payload=payload)

    def _begin_running(self, instance: Instance, at: int) -> None:
        instance.state = "running"
        instance.running_periods.append((at, None))
        self._append_segment(instance, at)

    def _cease_running(self, instance: Instance, at: int) -> None:
        from_at, _ = instance.running_periods.pop()
        if from_at < at:
            instance.running_periods.append((from_at, at))
        self._close_segment(instance, at)

    def _append_segment(self, instance: Instance, at: int) -> None:
        """R44: exactly one mode for each running millisecond."""
        if instance.billing == "none":
            mode = "none"
        elif instance.reservation_key is None:
            mode = "ondemand"
        else:
            mode = "reserved" if instance.grant_id is None else "grant"
        self.segments.append(
            Segment(
                instance_id=instance.instance_id,
                tenant_id=instance.tenant_id,
                project_id=instance.project_id,
                from_ms=at,
                to_ms=None,
                mode=mode,
                grant_id=instance.grant_id,
                reservation_key=instance.reservation_key,
            )
        )

    def _close_segment(self, instance: Instance, at: int) -> int:
        """Closes the open segment at `at`, never before its own start; returns the instant used."""
        for segment in self.segments:
            if segment.instance_id == instance.instance_id and segment.to_ms is None:
                segment.to_ms = max(at, segment.from_ms)
                if segment.to_ms == segment.from_ms:
                    self.segments.remove(segment)
                return segment.to_ms
        raise AssertionError(f"{instance.instance_id} runs without an open segment")

    def _rebill(self, instance: Instance, at: int) -> None:
        """Splits a running instance's bill at `at`, which may lie before now when a grant starts in the past (R30)."""
        if instance.state == "running":
            self._append_segment(instance, self._close_segment(instance, at))

    def _enter(self, instance: Instance, grant: Grant, at: int) -> None:
        instance.grant_id = grant.grant_id
        self._rebill(instance, at)

    def _leave(self, instance: Instance, at: int) -> None:
        instance.grant_id = None
        self._rebill(instance, at)

    # --- time ---------------------------------------------------------------------------------------------------

    def _open(self, now: int, *reservations: Reservation) -> int:
        """What every locked operation does first: the instant (R3), then the boundaries that are due (R16)."""
        instant = max([now, *(reservation.clock_at for reservation in reservations)])
        for reservation in sorted(reservations, key=lambda each: each.key):
            reservation.clock_at = instant
            self._apply_boundaries(reservation, instant)
        return instant

    def _apply_boundaries(self, reservation: Reservation, now: int) -> None:
        """R16, R34, D38: one at a time, (time, ends before starts, preference of the grant)."""
        while True:
            due: list[tuple[int, int, tuple[int, int, str]]] = []
            for grant in self.grants_on(reservation):
                if grant.cancelled_at is not None:
                    continue
                if not grant.ended_applied and grant.ends_at <= now:
                    due.append((grant.ends_at, 0, preference(grant)))
                if not grant.started_applied and grant.starts_at <= now:
                    due.append((grant.starts_at, 1, preference(grant)))
            if not due:
                return
            _, starting, (_, _, grant_id) = min(due)
            if starting:
                self._apply_start(self.grants[grant_id])
            else:
                self._apply_end(self.grants[grant_id])

    def _apply_start(self, grant: Grant) -> None:
        """R30, R31: takes in the tenant's running outside instances, oldest first, from the start of the term."""
        grant.started_applied = True
        self._publish_grant(grant, "active", occurred_at=grant.starts_at)
        reservation = self.reservations[grant.reservation_key]
        for instance in sorted(self.attached_to(reservation), key=age):
            outside = instance.state == "running" and instance.grant_id is None and instance.billing == "normal"
            if outside and self._has_room(grant, instance, grant.starts_at):
                self._enter(instance, grant, grant.starts_at)

    def _apply_end(self, grant: Grant) -> None:
        """R32, R33, R36: running instances go on to a grant live at that instant, the rest and the stopped ones out."""
        grant.ended_applied = True
        self._publish_grant(grant, "ended", occurred_at=grant.ends_at)
        reservation = self.reservations[grant.reservation_key]
        for instance in self.members_of(grant):
            live = self.live_on(reservation, grant.ends_at)
            heirs = [heir for heir in live if self._has_room(heir, instance, grant.ends_at)]
            if instance.state == "running" and heirs:
                self._enter(instance, heirs[0], grant.ends_at)
            else:
                self._leave(instance, grant.ends_at)

    def _has_room(self, grant: Grant, instance: Instance, at: int) -> bool:
        fits = self.serves(grant, at, tenant_id=instance.tenant_id, project_id=instance.project_id)
        return fits and len(self.members_of(grant)) < grant.slots

    def advance(self, now: int) -> Outcome:
        """Applies every due boundary of every reservation: the reconciler (R16). Changes nothing but delay (P3)."""
        for reservation in self.reservations.values():
            self._open(now, reservation)
        return ("ok", {})
