"""The naive model where the rules leave room and the product has decided: each difference with its reason, in one place.

`Oracle` is written from the rules alone and stays so. What is here is documented by the product (its docstrings name the
refusals and their order); nothing here touches capacity, terms, boundaries, segments or meters.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.oracle import Oracle
from tests.simulation.oracle_instances import FULL
from tests.simulation.oracle_rows import Grant, Instance, Outcome, Reservation, ReservationKey, state_of

GONE: Outcome = ("INVALID_STATE", {"state": "gone"})


class AgreedOracle(Oracle):
    """Answers as the product does, word for word."""

    refuses_reductions_above_total = False  # giving back needs no capacity

    def __init__(self, root_tenant_id: str = "root") -> None:
        super().__init__(root_tenant_id)
        self.homes: dict[str, ReservationKey] = {}  # instance -> the reservation whose books it is in
        self.lost: dict[ReservationKey, Reservation] = {}  # of deleted accounts: to the product they are gone

    # -- grants --------------------------------------------------------------------------------------------------

    def create_grant(self, now: int, **arguments: Any) -> Outcome:
        code, details = super().create_grant(now, **arguments)
        if code == "CONFLICT" and isinstance(details, dict):
            details = {"reason": "idempotency-key-reused", **details}
        return code, details

    def amend_grant(self, now: int, **arguments: Any) -> Outcome:
        """An amendment of nothing is malformed; a stale version is told which one holds."""
        if all(arguments.get(name) is None for name in ("slots", "starts_at", "ends_at")):
            return ("INVALID_INPUT", {"field": "slots", "reason": "nothing-to-change"})
        code, details = super().amend_grant(now, **arguments)
        if code == "CONFLICT":
            details = {"reason": "stale-version", "version": self.grants[arguments["grant_id"]].version}
        return code, details

    def _amend_fault(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> Outcome | None:
        """The same guards in the same order, in the product's words."""
        fault = super()._amend_fault(grant, now, new_slots=new_slots, new_start=new_start, new_end=new_end)
        if fault is None or state_of(grant, now) not in ("scheduled", "active") or fault[0] != "INVALID_STATE":
            return fault
        if new_start != grant.starts_at and state_of(grant, now) == "active":
            return ("INVALID_INPUT", {"field": "startsAt", "reason": "already-started"})
        return ("INVALID_STATE", {"state": "slots-held"})

    def _readmit(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> Outcome | None:
        """What changes nothing needs no room, also where a shrunken total has none."""
        if (new_slots, new_start, new_end) == (grant.slots, grant.starts_at, grant.ends_at):
            return None
        return super()._readmit(grant, now, new_slots=new_slots, new_start=new_start, new_end=new_end)

    def _rewrite(self, grant: Grant, now: int, *, new_slots: int, new_start: int, new_end: int) -> None:
        if (new_slots, new_start, new_end) != (grant.slots, grant.starts_at, grant.ends_at):
            super()._rewrite(grant, now, new_slots=new_slots, new_start=new_start, new_end=new_end)

    def _finish(self, grants: Any, now: int, *, reason: str | None = None) -> None:
        """Ending and cancelling make a new version too."""
        for grant in grants:
            grant.version += state_of(grant, now) in ("scheduled", "active")
        super()._finish(grants, now, reason=reason)

    # -- instances -----------------------------------------------------------------------------------------------

    def create_instance(self, now: int, **arguments: Any) -> Outcome:
        """Asked of one reservation's actor: no room is no room, whatever the reservation lacks (R28)."""
        key = (arguments["account_id"], arguments["reservation_id"])
        tenant_id, project_id = arguments["tenant_id"], arguments["project_id"]
        fault = self._project_fault(tenant_id, project_id)
        reservation = self.reservations.get(key)
        if fault is not None or reservation is None:
            return fault or FULL
        now = self._open(now, reservation)
        if reservation.status != "ready" or not self._reaches(reservation.pool_id, tenant_id):
            return FULL
        return self._settle_in(super().create_instance(now, **arguments))

    def create_instance_of_flavor(self, now: int, **arguments: Any) -> Outcome:
        """D32 over what is offered to the tenant."""
        tenant_id, pool_id = arguments["tenant_id"], arguments["pool_id"]
        bound = [
            reservation
            for reservation in (*self.reservations.values(), *self.lost.values())
            if reservation.flavor == arguments["flavor"]
            and pool_id in (None, reservation.pool_id)
            and self._reaches(reservation.pool_id, tenant_id)
        ]
        if not bound:
            return ("INVALID_INPUT", {"field": "flavor", "reason": "flavor-not-offered"})
        if all(each.status != "ready" or each.key in self.lost for each in bound):
            return FULL
        fault = self._project_fault(tenant_id, arguments["project_id"])
        return fault or self._settle_in(super().create_instance_of_flavor(now, **arguments))

    def _locked(self, now: int, instance: Instance) -> int:
        """One that is on demand is still in the books of the reservation that it was on, which has a floor (R3)."""
        home = self.homes.get(instance.instance_id)
        if instance.reservation_key is not None or home is None:
            return super()._locked(now, instance)
        if home in self.reservations:
            return self._open(now, self.reservations[home])
        lost = self.lost[home]
        lost.clock_at = max(now, lost.clock_at)
        return lost.clock_at

    def start_instance(self, now: int, *, instance_id: str) -> Outcome:
        """Not for a tenant or project that is gone. Where it starts is where it can come back to."""
        instance = self.instances[instance_id]
        now = self._locked(now, instance)
        if instance.state == "stopped":
            fault = self._project_fault(instance.tenant_id, instance.project_id)
            if fault is not None:
                return fault
        outcome = super().start_instance(now, instance_id=instance_id)
        if outcome[0] == "ok" and instance.reservation_key is not None:
            self.homes[instance_id] = instance.reservation_key
        return outcome

    def move_instance(self, now: int, **arguments: Any) -> Outcome:
        """What stays in its project is not billed anew."""
        instance = self.instances[arguments["instance_id"]]
        now = self._locked(now, instance)
        if instance.state == "deleted":
            return ("INVALID_STATE", {"state": "deleted"})
        fault = self._project_fault(instance.tenant_id, arguments["project_id"])
        if fault is not None:
            return fault
        if instance.project_id == arguments["project_id"]:
            starts = arguments.get("start", False)
            return (
                self.start_instance(now, instance_id=instance.instance_id) if starts else ("ok", instance.instance_id)
            )
        return super().move_instance(now, **arguments)

    def attach_instance(self, now: int, **arguments: Any) -> Outcome:
        """One that lost its reservation comes back to that one only (D14)."""
        key = (arguments["account_id"], arguments["reservation_id"])
        existing_id = arguments.get("existing_id")
        if existing_id is not None and self.homes[existing_id] != key:
            return ("NOT_FOUND", {})
        if key in self.lost:
            return ("NOT_FOUND", {})
        if self.reservations[key].status == "gone":
            return GONE
        existing = self.instances.get(existing_id or "")
        project_id = existing.project_id if existing else arguments.get("project_id")
        fault = self._project_fault(arguments["tenant_id"], project_id)
        if fault is not None:
            return fault
        code, details = super().attach_instance(now, **arguments)
        if code == "INVALID_STATE" and existing is not None and existing.state != "deleted":
            details = {"state": "attached"}
        return self._settle_in((code, details))

    def _settle_in(self, outcome: Outcome) -> Outcome:
        """Remembers where a new instance began."""
        code, instance_id = outcome
        if code == "ok" and isinstance(instance_id, str):
            key = self.instances[instance_id].reservation_key
            assert key is not None
            self.homes.setdefault(instance_id, key)
        return outcome

    def _project_fault(self, tenant_id: str, project_id: str | None) -> Outcome | None:
        """Tenant and project live and belong together; unknown, another's and deleted look the same (R9)."""
        project = self.projects.get(project_id or "")
        is_there = project is not None and project.tenant_id == tenant_id and project.deleted_at is None
        if is_there and not self._is_gone(tenant_id):
            return None
        return ("INVALID_INPUT", {"field": "projectId", "reason": "project-not-tenant"})

    def _reaches(self, pool_id: str | None, tenant_id: str) -> bool:
        """An offer that stands, to a deleted tenant too: that one is refused for its project."""
        return pool_id is not None and bool({tenant_id, "*"} & self.pools[pool_id].offered_to)

    # -- reservations, pools, deletions ----------------------------------------------------------------------------

    def bind(self, now: int, **arguments: Any) -> Outcome:
        if (arguments["account_id"], arguments["reservation_id"]) in self.lost:
            return ("NOT_FOUND", {})
        return super().bind(now, **arguments)

    def unbind(self, now: int, **arguments: Any) -> Outcome:
        if (arguments["account_id"], arguments["reservation_id"]) in self.lost:
            return ("NOT_FOUND", {})
        return super().unbind(now, **arguments)

    def offer(self, now: int, **arguments: Any) -> Outcome:
        """A deleted tenant is offered nothing new."""
        if self._is_gone(arguments["tenant_id"]):
            return ("INVALID_STATE", {"state": "deleted"})
        return super().offer(now, **arguments)

    def withdraw(self, now: int, **arguments: Any) -> Outcome:
        if arguments["tenant_id"] not in self.pools[arguments["pool_id"]].offered_to:
            return ("NOT_FOUND", {})
        return super().withdraw(now, **arguments)

    def delete_account(self, now: int, *, account_id: str) -> Outcome:
        """A second time is no mistake, as with tenants and projects."""
        account = self.accounts[account_id]
        if account.deleted_at is not None:
            return ("ok", account_id)
        mine = {each.key: each for each in self.reservations.values() if each.account_id == account_id}
        outcome = super().delete_account(now, account_id=account_id)
        if outcome[0] == "ok":
            self.lost.update(mine)
        return outcome
