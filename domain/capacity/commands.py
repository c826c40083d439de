"""What can be asked of one capacity reservation, and what a decision may know besides its state.

The desk has checked shapes and authority and made the ids before a command exists; time comes in with the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from domain.capacity.scan import ReportedReservation
from domain.capacity.state import Billing, Grant, Instance
from domain.registry import EVERYBODY


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about other things, read inside the turn after the lock: the ones that exist and are not deleted."""

    platform_tenant_id: str
    tenants: frozenset[str] = frozenset()
    projects: Mapping[str, str] = field(default_factory=dict)
    """project id -> the tenant that owns it."""
    offers: frozenset[tuple[str, str]] = frozenset()
    """(pool id, tenant id); the tenant id `EVERYBODY` offers the pool to all."""
    accounts: Mapping[str, str] = field(default_factory=dict)
    """account id -> provider."""
    pools: frozenset[str] = frozenset()
    past_grants: Mapping[str, Grant] = field(default_factory=dict)
    """Grants that a command names and the state no longer holds."""
    past_instances: Mapping[tuple[str, str], Instance] = field(default_factory=dict)
    """The same by (key, instance id): one that has moved is remembered by several reservations."""

    def is_offered(self, pool_id: str, tenant_id: str) -> bool:
        return (pool_id, tenant_id) in self.offers or (pool_id, EVERYBODY) in self.offers


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGrant:
    grant_id: str
    account_id: str
    reservation_id: str
    grant_tenant_id: str
    project_id: str | None
    slots: int
    starts_at: int
    ends_at: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndGrant:
    grant_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AmendGrant:
    """What is None stays as it is."""

    grant_id: str
    expected_version: int
    slots: int | None = None
    starts_at: int | None = None
    ends_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceInstance:
    instance_id: str
    tenant_id: str
    project_id: str
    name: str
    wanted_pool_id: str | None = None
    grants_only: bool = False
    """Take only a slot of an own grant: the first pass over several reservations of one flavor (D32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekSlot:
    """Whether there is room for an instance that is at another reservation. Nothing is taken."""

    tenant_id: str
    project_id: str
    billing: Billing
    grants_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartInstance:
    instance_id: str
    project_id: str | None = None
    """The project that it is in from now on; None: the one that it is in."""
    in_place: bool = False
    """Not if it has to be placed afresh (D27): that is told, for it may belong elsewhere now (D32)."""
    grants_only: bool = False
    """As in `PlaceInstance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeProject:
    """Put an instance into another project of its tenant (D39)."""

    instance_id: str
    project_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopInstance:
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteInstance:
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachInstance:
    """Count in an instance that runs at the provider already, or one that fell to on-demand when it was gone (D14)."""

    instance_id: str
    tenant_id: str
    project_id: str
    name: str
    billing: Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class BindReservation:
    pool_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbindReservation:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveReservation:
    """A provider reported this reservation; the first report makes it known."""

    account_id: str
    provider: str
    reported: ReportedReservation


@dataclass(frozen=True, slots=True, kw_only=True)
class MissReservation:
    """A complete scan of its account did not report it (R54)."""

    gone_after_misses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTenant:
    """A tenant was deleted at an instant: its part here ends at it (R53)."""

    tenant_id: str
    deleted_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """Nothing but the boundaries that are due, which every turn applies first."""


CapacityCommand: TypeAlias = (
    CreateGrant
    | EndGrant
    | AmendGrant
    | PlaceInstance
    | SeekSlot
    | StartInstance
    | ChangeProject
    | StopInstance
    | DeleteInstance
    | AttachInstance
    | BindReservation
    | UnbindReservation
    | ObserveReservation
    | MissReservation
    | CloseTenant
    | Advance
)
