"""The naive model's instances: placement, start, stop, delete, attach, change of project (R22-R29, R36, D27, D28, D32, D39)."""

from __future__ import annotations

from tests.simulation.oracle_grants import NOT_FOUND, Granting
from tests.simulation.oracle_rows import Grant, Instance, Outcome, Reservation, crockford

FULL: Outcome = ("CAPACITY_UNAVAILABLE", {})  # R28: no totals for a tenant


class Placing(Granting):
    """Commands of tenants on instances. Every answer is ("ok", instance id) or (code, details)."""

    # --- create -------------------------------------------------------------------------------------------------

    def create_instance(
        self,
        now: int,
        *,
        tenant_id: str,
        account_id: str,
        reservation_id: str,
        project_id: str | None = None,
        instance_id: str | None = None,
    ) -> Outcome:
        """R25 on one reservation. `instance_id` lets a comparison impose the id of the other side."""
        reservation = self.reservations.get((account_id, reservation_id))
        if reservation is None or self._is_gone(tenant_id):
            return NOT_FOUND
        now = self._open(now, reservation)
        if reservation.status != "ready":
            return ("INVALID_STATE", {"state": reservation.status})
        if reservation.pool_id is None:
            return ("INVALID_STATE", {"state": "unbound"})
        return self._create_on([reservation], now, tenant_id=tenant_id, project_id=project_id, instance_id=instance_id)

    def create_instance_of_flavor(
        self,
        now: int,
        *,
        tenant_id: str,
        pool_id: str | None,
        flavor: str,
        project_id: str | None = None,
        instance_id: str | None = None,
    ) -> Outcome:
        """D32: over the ready reservations of one flavor in a pool, or in any that is offered, by reservation id."""
        candidates = self._candidates(tenant_id=tenant_id, pool_id=pool_id, flavor=flavor)
        if not candidates or self._is_gone(tenant_id):
            return NOT_FOUND
        now = self._open(now, *candidates)
        outcome = self._create_on(candidates, now, tenant_id=tenant_id, project_id=project_id, instance_id=instance_id)
        if outcome[0] == "ok":
            self.instances[str(outcome[1])].wanted_pool = pool_id
        return outcome

    def _is_gone(self, tenant_id: str) -> bool:
        tenant = self.tenants.get(tenant_id)
        return tenant is None or tenant.deleted_at is not None

    def _create_on(
        self,
        candidates: list[Reservation],
        now: int,
        *,
        tenant_id: str,
        project_id: str | None,
        instance_id: str | None,
    ) -> Outcome:
        if project_id is not None:
            project = self.projects.get(project_id)
            if project is None or project.tenant_id != tenant_id or project.deleted_at is not None:
                return ("INVALID_INPUT", {"field": "projectId"})
        instance = Instance(
            instance_id=instance_id or f"inst_{crockford(self._next_number('instance'))}",
            tenant_id=tenant_id,
            project_id=project_id,
            flavor=candidates[0].flavor,
            created_at=now,
            reservation_key=None,
            state="stopped",
        )
        return self._place_on(candidates, instance, now)

    def _place_on(self, candidates: list[Reservation], instance: Instance, now: int) -> Outcome:
        """D32: an own grant's slot on any candidate first, then an ordinary slot on any."""
        for reservation in candidates:
            grant = self._own_grant(reservation, instance, now)
            if grant is not None:
                return self._take(instance, reservation, grant, now)
        for reservation in candidates:
            if self._has_ordinary_slot(reservation, now):
                return self._take(instance, reservation, None, now)
        return FULL

    def _own_grant(self, reservation: Reservation, instance: Instance, now: int) -> Grant | None:
        """R25 (1) and (2), R27: a live grant with a slot its instances do not hold, if anything fits physically."""
        figures = self._figures(reservation, now)
        if figures.used >= figures.total or instance.billing == "none":
            return None
        fitting = [grant for grant in self.live_on(reservation, now) if self._has_room(grant, instance, now)]
        return fitting[0] if fitting else None

    def _has_ordinary_slot(self, reservation: Reservation, now: int) -> bool:
        """R25 (1) and (3), R21: decided with F as it is, negative or not."""
        figures = self._figures(reservation, now)
        return figures.used < figures.total and figures.free >= 1

    def _take(self, instance: Instance, reservation: Reservation, grant: Grant | None, now: int) -> Outcome:
        """Places `instance` and writes down what the placement did to F (P8)."""
        free_before = self._figures(reservation, now).free
        self.instances[instance.instance_id] = instance
        instance.reservation_key = reservation.key
        instance.grant_id = None if grant is None else grant.grant_id
        self._begin_running(instance, now)
        self.placements.append(
            {
                "instance_id": instance.instance_id,
                "at": now,
                "grant_id": instance.grant_id,
                "free_before": free_before,
                "free_after": self._figures(reservation, now).free,
            }
        )
        return ("ok", instance.instance_id)

    # --- start, stop, delete --------------------------------------------------------------------------------------

    def _locked(self, now: int, instance: Instance) -> int:
        """R12: an instance attached to a reservation is decided under that reservation's lock."""
        if instance.reservation_key is None:
            return now
        return self._open(now, self.reservations[instance.reservation_key])

    def start_instance(self, now: int, *, instance_id: str) -> Outcome:
        """R23, D28: its own granted slot needs U < T only. R36, D27: any other start is a fresh placement, which knows
        nothing of where the instance was: R25 in the order of D32 over everything that could be given to it now."""
        instance = self.instances.get(instance_id)
        if instance is None:
            return NOT_FOUND
        now = self._locked(now, instance)
        if instance.state == "deleted":
            return ("INVALID_STATE", {"state": "deleted"})
        if instance.state == "running":
            return ("ok", instance_id)
        if instance.reservation_key is None:
            self._begin_running(instance, now)
            return ("ok", instance_id)
        reservation = self.reservations[instance.reservation_key]
        if instance.grant_id is not None:
            figures = self._figures(reservation, now)
            if figures.used >= figures.total:
                return FULL
            return self._take(instance, reservation, self.grants[instance.grant_id], now)
        candidates = self._candidates(
            tenant_id=instance.tenant_id, pool_id=instance.wanted_pool, flavor=instance.flavor
        )
        now = self._open(now, reservation, *candidates)
        return self._place_on(candidates, instance, now)

    def _candidates(self, *, tenant_id: str, pool_id: str | None, flavor: str) -> list[Reservation]:
        """Ready ones of the flavor, bound to a pool that is offered to the tenant: to the one that was asked for."""
        candidates = [
            reservation
            for reservation in self.reservations.values()
            if reservation.flavor == flavor
            and reservation.status == "ready"
            and reservation.pool_id is not None
            and pool_id in (None, reservation.pool_id)
            and self.is_offered(reservation.pool_id, tenant_id)
        ]
        return sorted(candidates, key=lambda reservation: (reservation.reservation_id, reservation.account_id))

    def stop_instance(self, now: int, *, instance_id: str) -> Outcome:
        """R23, R24: inside a grant it keeps its slot; an ordinary one gives its slot to the common pool."""
        instance = self.instances.get(instance_id)
        if instance is None:
            return NOT_FOUND
        now = self._locked(now, instance)
        if instance.state == "deleted":
            return ("INVALID_STATE", {"state": "deleted"})
        if instance.state == "running":
            instance.state = "stopped"
            self._cease_running(instance, now)
        return ("ok", instance_id)

    def delete_instance(self, now: int, *, instance_id: str) -> Outcome:
        """R24: gives back once what it holds, to its grant or to the common pool; a second delete changes nothing."""
        instance = self.instances.get(instance_id)
        if instance is None:
            return NOT_FOUND
        now = self._locked(now, instance)
        if instance.state == "running":
            self._cease_running(instance, now)
        instance.state = "deleted"
        instance.grant_id = None
        instance.reservation_key = None
        return ("ok", instance_id)

    # --- attach, move ---------------------------------------------------------------------------------------------

    def attach_instance(
        self,
        now: int,
        *,
        tenant_id: str,
        account_id: str,
        reservation_id: str,
        billing: str = "normal",
        project_id: str | None = None,
        created_at: int | None = None,
        existing_id: str | None = None,
        instance_id: str | None = None,
    ) -> Outcome:
        """R29: an imported running instance, or a detached one of ours (D14), enters no grant and is never refused
        for want of a slot: it runs already. With `billing` none it is never taken in later either (R31)."""
        reservation = self.reservations.get((account_id, reservation_id))
        existing = None if existing_id is None else self.instances.get(existing_id)
        if reservation is None or (existing_id is not None and existing is None):
            return NOT_FOUND
        now = self._open(now, reservation)
        if reservation.status == "gone":
            return ("INVALID_STATE", {"state": "gone"})
        if existing is None:
            existing = Instance(
                instance_id=instance_id or f"inst_{crockford(self._next_number('instance'))}",
                tenant_id=tenant_id,
                project_id=project_id,
                flavor=reservation.flavor,
                created_at=now if created_at is None else created_at,
                reservation_key=reservation.key,
                billing=billing,
            )
            self.instances[existing.instance_id] = existing
            self._begin_running(existing, now)
            return ("ok", existing.instance_id)
        if existing.tenant_id != tenant_id:
            return NOT_FOUND
        if existing.state == "deleted" or existing.reservation_key is not None:
            return ("INVALID_STATE", {"state": existing.state})
        existing.reservation_key = reservation.key
        existing.billing = billing
        self._rebill(existing, now)
        return ("ok", existing.instance_id)

    def move_instance(self, now: int, *, instance_id: str, project_id: str | None, start: bool = False) -> Outcome:
        """D39: another project of its tenant; a grant that no longer fits is left at once, a new one waits. B23: with
        `start` it runs afterwards, or nothing at all has happened."""
        instance = self.instances.get(instance_id)
        if instance is None:
            return NOT_FOUND
        now = self._locked(now, instance)
        if instance.state == "deleted":
            return ("INVALID_STATE", {"state": "deleted"})
        before = (instance.project_id, instance.grant_id)
        instance.project_id = project_id
        grant = None if instance.grant_id is None else self.grants[instance.grant_id]
        if grant is not None and not self.serves(grant, now, tenant_id=instance.tenant_id, project_id=project_id):
            instance.grant_id = None
        self._rebill(instance, now)
        outcome = self.start_instance(now, instance_id=instance_id) if start else ("ok", instance_id)
        if outcome[0] != "ok":  # only a stopped one is refused: there is no bill to mend
            instance.project_id, instance.grant_id = before
        return outcome
