"""Rows of capacity tables to domain things and back."""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern
from typing import Any

from domain.capacity.state import (
    Billing,
    CapacityState,
    Grant,
    Instance,
    Mode,
    Reservation,
    ReservationStatus,
    RunState,
    Segment,
)
from storage.database import Row


def reservation_of(row: Row) -> Reservation:
    return Reservation(
        key=row["key"],
        account_id=row["account_id"],
        reservation_id=row["reservation_id"],
        provider=row["provider"],
        flavor=row["flavor"],
        region=row["region"],
        total=row["total"],
        status=ReservationStatus(row["status"]),
        created_at=row["created_at"],
        pool_id=row["pool_id"],
        external_in_use=row["external_in_use"],
        clock_at=row["clock_at"],
        total_seq=row["total_seq"],
        gone_at=row["gone_at"],
        missed_scans=row["missed_scans"],
        version=row["version"],
        outbox_seq=row["outbox_seq"],
    )


def reservation_row(state: CapacityState) -> dict[str, Any]:
    reservation = state.reservation
    due = state.next_boundary()
    return {
        "key": reservation.key,
        "account_id": reservation.account_id,
        "reservation_id": reservation.reservation_id,
        "provider": reservation.provider,
        "flavor": reservation.flavor,
        "region": reservation.region,
        "total": reservation.total,
        "status": reservation.status.value,
        "pool_id": reservation.pool_id,
        "external_in_use": reservation.external_in_use,
        "clock_at": reservation.clock_at,
        "total_seq": reservation.total_seq,
        "gone_at": reservation.gone_at,
        "missed_scans": reservation.missed_scans,
        "created_at": reservation.created_at,
        "next_boundary_at": due[0] if due else None,
        "version": reservation.version,
        "outbox_seq": reservation.outbox_seq,
    }


def moved_head_row(state: CapacityState) -> dict[str, Any]:
    """What every turn changes of a head."""
    reservation, due = state.reservation, state.next_boundary()
    return {
        "key": reservation.key,
        "clock_at": reservation.clock_at,
        "next_boundary_at": due[0] if due else None,
        "version": reservation.version,
        "outbox_seq": reservation.outbox_seq,
    }


def grant_of(row: Row) -> Grant:
    """What many grants say is one object in all of them: a hundred thousand in memory are a fifth smaller so."""
    pieces = row["commitments"] or [(row["starts_at"], row["slots"])]
    return Grant(
        grant_id=row["grant_id"],
        tenant_id=intern(row["tenant_id"]),
        project_id=row["project_id"],
        slots=row["slots"],
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        created_at=row["created_at"],
        created_by=intern(row["created_by"]),
        pool_id=intern(row["pool_id"]),
        region=intern(row["region"]),
        provider=intern(row["provider"]),
        cancelled_at=row["cancelled_at"],
        ended_reason=row["ended_reason"],
        started_applied=row["started_applied"],
        ended_applied=row["ended_applied"],
        commitments=tuple((from_at, slots) for from_at, slots in pieces),
        version=row["version"],
    )


@dataclass(frozen=True, slots=True)
class PlacedGrant:
    """A grant with its reservation's key, and the floor of the instants that it may be shown at (R3)."""

    key: str
    grant: Grant
    clock_at: int


def placed_grant_of(row: Row) -> PlacedGrant:
    return PlacedGrant(row["key"], grant_of(row), row["clock_at"])


def grant_row(key: str, grant: Grant, *, turn: int) -> dict[str, Any]:
    """`turn`: the version that the reservation gets with it."""
    return {
        "key": key,
        "grant_id": grant.grant_id,
        "tenant_id": grant.tenant_id,
        "project_id": grant.project_id,
        "slots": grant.slots,
        "starts_at": grant.starts_at,
        "ends_at": grant.ends_at,
        "created_at": grant.created_at,
        "created_by": grant.created_by,
        "pool_id": grant.pool_id,
        "region": grant.region,
        "provider": grant.provider,
        "cancelled_at": grant.cancelled_at,
        "ended_reason": grant.ended_reason,
        "started_applied": grant.started_applied,
        "ended_applied": grant.ended_applied,
        "commitments": grant.commitments if len(grant.commitments) > 1 else None,
        "version": grant.version,
        "turn": turn,
    }


def instance_of(row: Row, segment: Segment | None = None) -> Instance:
    return Instance(
        instance_id=row["instance_id"],
        tenant_id=row["tenant_id"],
        project_id=row["project_id"],
        name=row["name"],
        created_at=row["created_at"],
        run_state=RunState(row["run_state"]),
        billing=Billing(row["billing"]),
        grant_id=row["grant_id"],
        attached=row["attached"],
        wanted_pool_id=row["wanted_pool_id"],
        moved_to=row["moved_to"],
        segment=segment,
        segment_count=row["segment_count"],
    )


def instance_row(key: str, instance: Instance, *, turn: int) -> dict[str, Any]:
    """`turn`: the version that the reservation gets with it."""
    return {
        "key": key,
        "instance_id": instance.instance_id,
        "tenant_id": instance.tenant_id,
        "project_id": instance.project_id,
        "name": instance.name,
        "created_at": instance.created_at,
        "run_state": instance.run_state.value,
        "billing": instance.billing.value,
        "grant_id": instance.grant_id,
        "attached": instance.attached,
        "wanted_pool_id": instance.wanted_pool_id,
        "moved_to": instance.moved_to,
        "segment_count": instance.segment_count,
        "turn": turn,
    }


def segment_of(row: Row) -> Segment:
    return Segment(
        number=row["number"],
        from_at=row["from_at"],
        to_at=row["to_at"],
        mode=Mode(row["mode"]),
        grant_id=row["grant_id"],
        project_id=row["project_id"],
    )


def segment_row(key: str, instance_id: str, segment: Segment) -> dict[str, Any]:
    return {
        "key": key,
        "instance_id": instance_id,
        "number": segment.number,
        "from_at": segment.from_at,
        "to_at": segment.to_at,
        "mode": segment.mode.value,
        "grant_id": segment.grant_id,
        "project_id": segment.project_id,
    }
