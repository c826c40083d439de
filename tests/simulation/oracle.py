"""The naive model of the capacity rules, complete: scans, guards, deletions, metering and an export of its rows.

Written from the rules alone, with full scans everywhere and nothing shared with the product, so that the two can be
compared. `Oracle` answers each command with ("ok", id) or (refusal code, details) and takes its instant as `now`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.simulation.oracle_grants import NOT_FOUND
from tests.simulation.oracle_instances import Placing
from tests.simulation.oracle_rows import (
    HOUR_MS,
    Grant,
    Outcome,
    Reservation,
    Usage,
    hours_of,
    slot_ms,
    slots_at,
    state_of,
)

SLOT_METER = "vm.grant.slot.hours"
METER_OF_MODE = {"grant": "vm.grant.usage.hours", "reserved": "vm.reserved.hours", "ondemand": "vm.ondemand.hours"}

Report = Mapping[str, int | bool | None]
Rows = dict[str, object]


def row_of(thing: object) -> dict[str, object]:
    """A dataclass as a dict of its own; its lists are copied, their items are never changed in place."""
    return {name: list(value) if isinstance(value, list) else value for name, value in vars(thing).items()}


class InstanceHour(NamedTuple):
    """What an instance's usage records are counted by."""

    instance_id: str
    tenant_id: str
    project_id: str | None
    meter: str
    grant_id: str | None
    hour_start: int


class Oracle(Placing):
    """The whole model; see `Granting` for grants, `Placing` for instances, `World` for time."""

    # --- scan ---------------------------------------------------------------------------------------------------

    def scan(self, now: int, *, account_id: str, reported: Mapping[str, Report], complete: bool = True) -> Outcome:
        """R54-R59, D12-D16: what the provider says of one account: reservation id -> total, in_use, ready.

        `in_use` is the provider's own count or None, `ready` defaults to True. A scan that did not complete
        changes nothing. Reservations it does not know are left alone.
        """
        if account_id not in self.accounts:
            return NOT_FOUND
        if not complete:
            return ("ok", account_id)
        mine = sorted(
            (reservation for reservation in self.reservations.values() if reservation.account_id == account_id),
            key=lambda reservation: reservation.key,
        )
        now = self._open(now, *mine)
        for reservation in mine:
            report = reported.get(reservation.reservation_id)
            if report is not None:
                self._take_report(reservation, report, now)
            elif reservation.status != "gone":
                self._mark_gone(reservation, now)
        return ("ok", account_id)

    def _take_report(self, reservation: Reservation, report: Report, now: int) -> None:
        reservation.status = "ready" if report.get("ready", True) else "not_ready"
        in_use = report.get("in_use")
        if in_use is not None:
            running = [each for each in self.attached_to(reservation) if each.state == "running"]
            reservation.external_in_use = max(0, in_use - len(running))
        total = report["total"]
        assert total is not None
        if total != reservation.total:
            reservation.total = total
            reservation.total_changes += 1
            self._report_shortage(reservation, now)

    def _report_shortage(self, reservation: Reservation, now: int) -> None:
        """R57, D44, D45: scheduled and active grants at their peak from now on against the new total."""
        pending = self.pending_on(reservation, now)
        instants = {now, *(grant.starts_at for grant in pending if grant.starts_at > now)}
        sums = {instant: sum(slots_at(grant, instant) for grant in pending) for instant in instants}
        over = [instant for instant, granted in sums.items() if granted > reservation.total]
        if not over:
            return
        short = [grant for grant in pending if any(slots_at(grant, instant) for instant in over)]
        short.sort(key=lambda grant: (grant.starts_at, grant.grant_id))
        self._publish(
            self.root_tenant_id,
            "reservation-grant.capacity-short",
            occurred_at=now,
            payload={
                "accountId": reservation.account_id,
                "reservationId": reservation.reservation_id,
                "total": reservation.total,
                "grantedSlots": max(sums.values()),
                "grantIds": [grant.grant_id for grant in short],
            },
        )

    def _mark_gone(self, reservation: Reservation, now: int) -> None:
        """R37, R55, R56, D14: grants finish without hand-over, every instance is on-demand and detached."""
        reservation.status = "gone"
        reservation.external_in_use = 0
        self._finish(self.pending_on(reservation, now), now, reason="reservation-gone")
        self._detach_all(reservation, now)

    def _detach_all(self, reservation: Reservation, now: int) -> None:
        for instance in self.attached_to(reservation):
            instance.grant_id = None
            instance.reservation_key = None
            self._rebill(instance, now)

    # --- pools --------------------------------------------------------------------------------------------------

    def bind(self, now: int, *, account_id: str, reservation_id: str, pool_id: str) -> Outcome:
        reservation = self.reservations.get((account_id, reservation_id))
        if reservation is None or pool_id not in self.pools:
            return NOT_FOUND
        self._open(now, reservation)
        if reservation.status == "gone" or reservation.pool_id not in (None, pool_id):
            return ("INVALID_STATE", {"state": "gone" if reservation.status == "gone" else "bound"})
        reservation.pool_id = pool_id
        return ("ok", reservation_id)

    def unbind(self, now: int, *, account_id: str, reservation_id: str) -> Outcome:
        """R51, D48: refused while a grant is scheduled or active; does not wait for metering (R52)."""
        reservation = self.reservations.get((account_id, reservation_id))
        if reservation is None:
            return NOT_FOUND
        now = self._open(now, reservation)
        guard = self._guard(self.pending_on(reservation, now))
        if guard is None:
            reservation.pool_id = None
        return guard or ("ok", reservation_id)

    def offer(self, now: int, *, pool_id: str, tenant_id: str) -> Outcome:
        """Offers a pool to one tenant, or to all with "*"."""
        if pool_id not in self.pools:
            return NOT_FOUND
        self.pools[pool_id].offered_to.add(tenant_id)
        return ("ok", pool_id)

    def withdraw(self, now: int, *, pool_id: str, tenant_id: str) -> Outcome:
        """D29: refused like unbind while a grant of the pool would be left without an offer."""
        if pool_id not in self.pools:
            return NOT_FOUND
        bound = [reservation for reservation in self.reservations.values() if reservation.pool_id == pool_id]
        now = self._open(now, *bound)
        left = self.pools[pool_id].offered_to - {tenant_id}
        stranded = [
            grant
            for reservation in bound
            for grant in self.pending_on(reservation, now)
            if not left & {"*", grant.tenant_id}
        ]
        guard = self._guard(stranded)
        if guard is None:
            self.pools[pool_id].offered_to = left
        return guard or ("ok", pool_id)

    def _guard(self, grants: list[Grant]) -> Outcome | None:
        if not grants:
            return None
        return ("INVALID_STATE", {"grantIds": sorted(grant.grant_id for grant in grants)})

    # --- deletions ----------------------------------------------------------------------------------------------

    def delete_account(self, now: int, *, account_id: str) -> Outcome:
        """R51, R52, D19: guarded by live grants, then by unmetered ended ones; takes the others and their keys along.

        Instances still attached are on-demand from then on, as when a reservation goes away.
        """
        account = self.accounts.get(account_id)
        if account is None or account.deleted_at is not None:
            return NOT_FOUND
        mine = [reservation for reservation in self.reservations.values() if reservation.account_id == account_id]
        now = self._open(now, *mine)
        grants = [grant for reservation in mine for grant in self.grants_on(reservation)]
        live = [grant for grant in grants if state_of(grant, now) in ("scheduled", "active")]
        guard = self._guard(live) or self._guard([grant for grant in grants if not self.is_metered_out(grant)])
        if guard is not None:
            return guard
        account.deleted_at = now
        for reservation in mine:
            self._detach_all(reservation, now)
            del self.reservations[reservation.key]
        for grant in grants:
            del self.grants[grant.grant_id]
        self.keys = {key: entry for key, entry in self.keys.items() if entry[0] in self.grants}
        return ("ok", account_id)

    def delete_tenant(self, now: int, *, tenant_id: str) -> Outcome:
        """R53, D40: its active grants end together, its scheduled ones are cancelled, no reason on the events."""
        tenant = self.tenants.get(tenant_id)
        if tenant is None:
            return NOT_FOUND
        if tenant.deleted_at is not None:
            return ("ok", tenant_id)
        held = [grant for grant in self.grants.values() if grant.tenant_id == tenant_id]
        touched = {grant.reservation_key for grant in held}
        now = self._open(now, *(self.reservations[key] for key in touched))
        tenant.deleted_at = now
        for key in sorted(touched):
            mine = [grant for grant in self.pending_on(self.reservations[key], now) if grant.tenant_id == tenant_id]
            self._finish(mine, now)
        return ("ok", tenant_id)

    def delete_project(self, now: int, *, project_id: str) -> Outcome:
        """D30: its grants stay and bill; nobody else enters them."""
        project = self.projects.get(project_id)
        if project is None:
            return NOT_FOUND
        # The project's grants are caught up first: what was due before the deletion still found the project alive.
        restricted = {grant.reservation_key for grant in self.grants.values() if grant.project_id == project_id}
        now = self._open(now, *(self.reservations[key] for key in restricted))
        if project.deleted_at is None:
            project.deleted_at = now
        return ("ok", project_id)

    # --- metering -----------------------------------------------------------------------------------------------

    def is_metered_out(self, grant: Grant) -> bool:
        """R40, R42, R52: owes nothing, or a pass has run at or after the end of its last hour."""
        if grant.cancelled_at is not None or grant.ends_at == grant.starts_at:
            return True
        return grant.metered_through >= (grant.ends_at - 1) // HOUR_MS * HOUR_MS + HOUR_MS

    def meter(self, now: int) -> Outcome:
        """R38-R46: one pass over every hour that is over. Idempotent; a changed past hour gets a correction (D6)."""
        now = self._open(now, *self.reservations.values())
        written = {usage.source_key for usage in self.usage}
        for grant in self.grants.values():
            self._meter_slots(grant, now, written)
            grant.metered_through = now // HOUR_MS * HOUR_MS
        self._meter_instances(now)
        return ("ok", {})

    def _meter_slots(self, grant: Grant, now: int, written: set[str]) -> None:
        for hour in hours_of(grant.starts_at, min(grant.ends_at, now // HOUR_MS * HOUR_MS)):
            quantity = slot_ms(grant, hour, hour + HOUR_MS)
            source_key = f"slot:{grant.grant_id}:{hour}"
            if quantity > 0 and source_key not in written:
                self.usage.append(
                    Usage(
                        source_key=source_key,
                        tenant_id=grant.tenant_id,
                        project_id=grant.project_id,
                        meter=SLOT_METER,
                        hour_start=hour,
                        quantity_ms=quantity,
                        grant_id=grant.grant_id,
                        instance_id=None,
                        tags={"region": grant.region, "pool": grant.pool_id, "provider": grant.provider},
                    )
                )

    def _meter_instances(self, now: int) -> None:
        """R43-R45: what the segments say of each ended hour, minus what is on record already."""
        owed = self._instance_hours(now // HOUR_MS * HOUR_MS)
        records: dict[InstanceHour, int] = {}
        for usage in self.usage:
            if usage.instance_id is not None:
                entry = InstanceHour(
                    usage.instance_id, usage.tenant_id, usage.project_id, usage.meter, usage.grant_id, usage.hour_start
                )
                owed[entry] = owed.get(entry, 0) - usage.quantity_ms
                records[entry] = records.get(entry, 0) + 1
        for entry, quantity in owed.items():
            if quantity != 0:
                number = records.get(entry, 0)
                source_key = ":".join(str(part) for part in ("use", *entry, number))
                self.usage.append(Usage(source_key=source_key, quantity_ms=quantity, tags={}, **entry._asdict()))

    def _instance_hours(self, over_at: int) -> dict[InstanceHour, int]:
        """Running milliseconds of every instance before `over_at`, by hour and by what they are billed as."""
        hours: dict[InstanceHour, int] = {}
        for segment in self.segments:
            if segment.mode == "none":
                continue
            to_ms = over_at if segment.to_ms is None else min(segment.to_ms, over_at)
            for hour in hours_of(segment.from_ms, to_ms):
                entry = InstanceHour(
                    segment.instance_id,
                    segment.tenant_id,
                    segment.project_id,
                    METER_OF_MODE[segment.mode],
                    segment.grant_id,
                    hour,
                )
                hours[entry] = hours.get(entry, 0) + min(to_ms, hour + HOUR_MS) - max(segment.from_ms, hour)
        return hours

    # --- export -------------------------------------------------------------------------------------------------

    def rows(self, now: int, *, metered_at: int | None = None) -> Rows:
        """The rows in the shape that the auditor documents. Catches up first, so the events are complete at `now`.

        Give `metered_at` only when a metering pass at that instant was the last thing that happened.
        """
        self.advance(now)
        reservations = []
        for reservation in self.reservations.values():
            now = max(now, reservation.clock_at)
            reservations.append({**row_of(reservation), "free": self._figures(reservation, now).free})
        instances = []
        for instance in self.instances.values():
            account_id, reservation_id = instance.reservation_key or (None, None)
            instances.append({**row_of(instance), "account_id": account_id, "reservation_id": reservation_id})
        return {
            "now": now,
            "advanced_at": now,
            "metered_at": metered_at,
            "reservations": reservations,
            "grants": [row_of(grant) for grant in self.grants.values()],
            "instances": instances,
            "segments": [row_of(segment) for segment in self.segments],
            "events": [row_of(event) for stream in self.events.values() for event in stream],
            "usage": [row_of(usage) for usage in self.usage],
            "placements": [dict(placement) for placement in self.placements],
        }
