"""The setting of the written scenarios: one reservation of `total` slots, tenants A and B, two projects of A."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tests.simulation.oracle import Oracle, Report
from tests.simulation.oracle_rows import HOUR_MS, Event, Figures, Grant, Outcome

B = 1_800_000_000_000  # 2027-01-15T08:00:00.000Z, on a UTC hour
H = HOUR_MS
M = 60_000

ROOT = "root"
ACCOUNT = "pacct_" + "0" * 26
OTHER_ACCOUNT = "pacct_" + "1" * 26
RESERVATION = "zone/large"
POOL = "pool"
PROJECT_P = "prj_" + "p" * 26
PROJECT_Q = "prj_" + "q" * 26
PROJECT_OF_B = "prj_" + "b" * 26

FULL: Outcome = ("CAPACITY_UNAVAILABLE", {})


def refused(total: int, granted: int) -> Outcome:
    return ("CAPACITY_UNAVAILABLE", {"total": total, "granted": granted})


class Scene:
    """An oracle with the everyday arguments filled in; plain commands go to `oracle` itself."""

    def __init__(self, total: int = 10) -> None:
        self.oracle = Oracle(ROOT)
        self._keys = 0
        for tenant_id in ("A", "B"):
            self.oracle.add_tenant(tenant_id)
        for project_id, tenant_id in ((PROJECT_P, "A"), (PROJECT_Q, "A"), (PROJECT_OF_B, "B")):
            self.oracle.add_project(project_id, tenant_id=tenant_id)
        for account_id in (ACCOUNT, OTHER_ACCOUNT):
            self.oracle.add_account(account_id)
        self.oracle.add_pool(POOL, offered_to={"A", "B"})
        self.oracle.add_reservation(ACCOUNT, RESERVATION, total=total, pool_id=POOL, region="region-1")

    def try_grant(
        self,
        slots: int,
        starts_at: int,
        ends_at: int,
        *,
        now: int = B,
        tenant: str = "A",
        project: str | None = None,
        key: str | None = None,
        account: str = ACCOUNT,
        reservation: str = RESERVATION,
        caller: str = ROOT,
        authorized: bool = True,
    ) -> Outcome:
        self._keys += 1
        return self.oracle.create_grant(
            now,
            tenant_id=caller,
            account_id=account,
            reservation_id=reservation,
            grant_tenant_id=tenant,
            project_id=project,
            slots=slots,
            starts_at=starts_at,
            ends_at=ends_at,
            key=key or f"key-{self._keys}",
            authorized=authorized,
        )

    def grant(
        self,
        slots: int,
        starts_at: int,
        ends_at: int,
        *,
        now: int = B,
        tenant: str = "A",
        project: str | None = None,
        key: str | None = None,
    ) -> str:
        return accepted(self.try_grant(slots, starts_at, ends_at, now=now, tenant=tenant, project=project, key=key))

    def end(self, grant_id: str, now: int, *, account: str = ACCOUNT) -> Outcome:
        return self.oracle.end_grant(now, tenant_id=ROOT, account_id=account, grant_id=grant_id)

    def amend(self, grant_id: str, now: int, *, version: int = 1, **changes: Any) -> Outcome:
        return self.oracle.amend_grant(
            now, tenant_id=ROOT, account_id=ACCOUNT, grant_id=grant_id, version=version, **changes
        )

    def try_run(self, tenant: str = "A", *, now: int = B, project: str | None = None) -> Outcome:
        return self.oracle.create_instance(
            now, tenant_id=tenant, account_id=ACCOUNT, reservation_id=RESERVATION, project_id=project
        )

    def run(self, tenant: str = "A", *, now: int = B, project: str | None = None) -> str:
        return accepted(self.try_run(tenant, now=now, project=project))

    def runs(self, count: int, tenant: str = "A", *, now: int = B, project: str | None = None) -> list[str]:
        return [self.run(tenant, now=now, project=project) for _ in range(count)]

    def stop(self, instance_id: str, now: int = B) -> Outcome:
        return self.oracle.stop_instance(now, instance_id=instance_id)

    def start(self, instance_id: str, now: int = B) -> Outcome:
        return self.oracle.start_instance(now, instance_id=instance_id)

    def delete(self, instance_id: str, now: int = B) -> Outcome:
        return self.oracle.delete_instance(now, instance_id=instance_id)

    def attach(self, tenant: str, billing: str, now: int = B, **more: Any) -> Outcome:
        return self.oracle.attach_instance(
            now, tenant_id=tenant, account_id=ACCOUNT, reservation_id=RESERVATION, billing=billing, **more
        )

    def scan(
        self,
        total: int | None,
        now: int = B,
        *,
        in_use: int | None = None,
        complete: bool = True,
        reported_too: Mapping[str, int] = MappingProxyType({}),
    ) -> Outcome:
        """A report of the reservation's total; None leaves the reservation out of the report. `reported_too` are the
        totals of others."""
        reported: dict[str, Report] = {name: {"total": other} for name, other in reported_too.items()}
        if total is not None:
            reported[RESERVATION] = {"total": total, "in_use": in_use}
        return self.oracle.scan(now, account_id=ACCOUNT, reported=reported, complete=complete)

    # --- what came of it ------------------------------------------------------------------------------------------

    def figures(self, now: int = B) -> Figures:
        return self.oracle.figures(now, ACCOUNT, RESERVATION)

    def free(self, now: int = B) -> int:
        return self.figures(now).free

    def row(self, grant_id: str) -> Grant:
        return self.oracle.grants[grant_id]

    def grants_of(self, instances: list[str], now: int) -> list[str | None]:
        self.oracle.advance(now)
        return [self.oracle.instances[instance_id].grant_id for instance_id in instances]

    def events(self, grant_id: str, now: int) -> list[tuple[str, int]]:
        """(type, instant) of one grant's events, in the order of its tenant's stream."""
        self.oracle.advance(now)
        stream = self.oracle.events.get(self.row(grant_id).tenant_id, [])
        mine = [event for event in stream if event.payload["grantId"] == grant_id]
        return [(event.type.removeprefix("reservation-grant."), event.occurred_at) for event in mine]

    def shortages(self) -> list[Event]:
        return [event for event in self.oracle.events.get(ROOT, []) if event.type == "reservation-grant.capacity-short"]

    def metered(self, meter: str, *, grant: str | None = None, instance: str | None = None) -> dict[int, Fraction]:
        """Recorded hours by hour offset from B, exact: {0: 3, 1: 3/2}."""
        hours: dict[int, Fraction] = {}
        for usage in self.oracle.usage:
            fits = (grant is None or usage.grant_id == grant) and (instance is None or usage.instance_id == instance)
            if usage.meter == meter and fits:
                offset = (usage.hour_start - B) // H
                hours[offset] = hours.get(offset, Fraction(0)) + Fraction(usage.quantity_ms, H)
        return {offset: quantity for offset, quantity in hours.items() if quantity != 0}


def accepted(outcome: Outcome) -> str:
    code, answer = outcome
    assert code == "ok", outcome
    assert isinstance(answer, str)
    return answer


def reason_of(outcome: Outcome) -> tuple[str, object]:
    """(code, details.reason or details.field)."""
    code, details = outcome
    assert isinstance(details, dict)
    return (code, details.get("reason", details.get("field")))


def ids_of(outcome: Outcome) -> object:
    """details.grantIds of a guard's INVALID_STATE."""
    code, details = outcome
    assert code == "INVALID_STATE", outcome
    assert isinstance(details, dict)
    return details["grantIds"]
