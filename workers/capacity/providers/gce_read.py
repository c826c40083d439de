"""What Compute Engine's answer means: pages of its aggregated list, gathered into one report. No network here.

The settings and the mapping are described in `gce`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import check_reservation
from workers.capacity.providers.gce import GceSettings
from workers.capacity.providers.protocol import RESERVATIONS_MAX, bounded

if TYPE_CHECKING:
    from google.cloud.compute_v1 import types

READY: Final = "READY"
NOTHING_HERE: Final = "NO_RESULTS_ON_PAGE"
"""The one warning that takes nothing away: an empty zone."""

ATTACHED_FAMILIES: Final = ("n1-", "custom-")
"""Machine types to which accelerators are attached one by one (a custom type without a family is an N1); for every
other machine type the name tells the accelerators."""


class Uncounted(str):
    """Why a reservation is rightly left out: a remark, the report stays complete."""

    __slots__ = ()


class Unreadable(str):
    """Why a reservation that should be in the report is not: the report becomes incomplete."""

    __slots__ = ()


class Gathering:
    """One scan in the making: the pages it has seen so far and what is wrong with them."""

    def __init__(self, settings: GceSettings) -> None:
        self._settings = settings
        self._found: dict[str, ReportedReservation] = {}
        self._seen_zones: set[str] = set()
        self._failures: list[str] = []
        self._remarks: list[str] = []

    def fail(self, problem: str) -> None:
        """Something was not seen, so the report will be incomplete."""
        self._failures.append(problem)

    def add_page(self, page: types.ReservationAggregatedList) -> None:
        """Take in one page: its reservations, its warnings, and the places that it could not reach."""
        if "warning" in page:
            self._weigh(page.warning, place="the list")
        for place in page.unreachables:
            if self._wanted(place):
                self.fail(f"{place} could not be reached")
        for scope, content in page.items.items():
            self._add_scope(scope, content)

    def report(self) -> ScanReport:
        """What all pages together say. Complete only when nothing failed and every wanted zone was mentioned."""
        failures = [*self._failures, *self._silent_zones()]
        return ScanReport(
            reservations=tuple(self._found.values()),
            complete=not failures,
            problems=bounded([*failures, *self._remarks]),
        )

    def _silent_zones(self) -> Iterator[str]:
        """A list names every zone it looked at, the empty ones too: one that it does not name was not looked at."""
        if self._failures:
            return
        for zone in sorted(self._settings.zones - self._seen_zones):
            yield f"the answer does not mention the zone {zone}: does it exist?"
        if not self._seen_zones and not self._settings.zones:
            yield "the answer mentions no zone at all"

    def _add_scope(self, scope: str, content: types.ReservationsScopedList) -> None:
        zone = _zone_of(scope)
        if not self._wanted(scope):
            return
        if zone is not None:
            self._seen_zones.add(zone)
        if "warning" in content:
            self._weigh(content.warning, place=scope)
        for item in content.reservations:
            if zone is None:
                self.fail(f"{scope}: {item.name} is not in a zone")
            else:
                self._add(item, zone=zone)

    def _add(self, item: types.Reservation, *, zone: str) -> None:
        reservation_id = f"projects/{self._settings.project}/zones/{zone}/reservations/{item.name}"
        read = self._owner_trouble(item) or _read(item, self._settings, zone=zone, reservation_id=reservation_id)
        if isinstance(read, Unreadable):
            self.fail(f"{reservation_id} {read}")
        elif isinstance(read, Uncounted):
            self._remarks.append(f"{reservation_id} {read}")
        elif len(self._found) >= RESERVATIONS_MAX:
            self.fail(f"the account has more than {RESERVATIONS_MAX} reservations")
        elif self._found.setdefault(reservation_id, read) != read:
            # A list can shift between two pages; seen twice alike is harmless, seen twice differently is not one look.
            self.fail(f"{reservation_id} changed between two pages")
        else:
            self._remark_unusable(item, reservation_id=reservation_id)

    def _remark_unusable(self, item: types.Reservation, *, reservation_id: str) -> None:
        specific = item.specific_reservation
        if item.status == READY and "assured_count" in specific and specific.assured_count < specific.count:
            self._remarks.append(
                f"{reservation_id}: only {specific.assured_count} of {specific.count} reserved machines are usable now"
            )

    def _owner_trouble(self, item: types.Reservation) -> Unreadable | None:
        """A reservation of another project means that the answer is not for our question (R54: the right project)."""
        words = item.self_link.split("/")
        owner = words[words.index("projects") + 1] if "projects" in words[:-1] else self._settings.project
        # Google may name a project by its number, which says nothing against the id we asked for.
        if owner == self._settings.project or owner.isdigit():
            return None
        return Unreadable(f"belongs to another project ({owner})")

    # `Any`: the client's annotation of its warnings names Python's own `Warning` by mistake.
    def _weigh(self, warning: Any, *, place: str) -> None:
        if warning.code == NOTHING_HERE:
            return
        scopes = [entry.value for entry in warning.data if entry.key == "scope"]
        if scopes and not any(self._wanted(scope) for scope in scopes):
            return
        self.fail(f"{place}: {warning.code}: {warning.message}")

    def _wanted(self, place: str) -> bool:
        zone = _zone_of(place)
        return not self._settings.zones or zone is None or zone in self._settings.zones


def _read(
    item: types.Reservation, settings: GceSettings, *, zone: str, reservation_id: str
) -> ReportedReservation | Uncounted | Unreadable:
    if "aggregate_reservation" in item:
        counted = _count_aggregate(item.aggregate_reservation, settings=settings)
    elif "specific_reservation" in item:
        counted = _count_specific(item.specific_reservation, settings=settings)
    else:
        return Unreadable("is neither a specific nor an aggregate reservation")
    if isinstance(counted, Uncounted | Unreadable):
        return counted
    flavor, total, in_use = counted
    reservation = ReportedReservation(
        reservation_id=reservation_id,
        flavor=flavor,
        region=zone.rpartition("-")[0],
        total=total,
        in_use=in_use,
        ready=item.status == READY,
    )
    refusal = check_reservation(reservation)
    return reservation if refusal is None else Unreadable(_words(refusal))


def _count_specific(
    specific: types.AllocationSpecificSKUReservation, *, settings: GceSettings
) -> tuple[str, int, int | None] | Unreadable:
    """(flavor, total, in use) in slots."""
    machine_type = _last_word(specific.instance_properties.machine_type)
    if not machine_type or "count" not in specific:
        return Unreadable("has no machine type or no count")
    accelerators = [
        (_last_word(accelerator.accelerator_type), accelerator.accelerator_count)
        for accelerator in specific.instance_properties.guest_accelerators
    ]
    slots_each = 1
    if settings.slots_per_accelerator:
        listed = sum(count for _, count in accelerators) if accelerators else None
        per_instance = settings.accelerators_per_instance.get(machine_type, listed)
        if per_instance is None:
            return Unreadable(f"lists no accelerators: say how many one {machine_type} has in acceleratorsPerInstance")
        slots_each = per_instance
    in_use = specific.in_use_count * slots_each if "in_use_count" in specific else None
    return _flavor(machine_type, accelerators, settings=settings), specific.count * slots_each, in_use


def _count_aggregate(
    aggregate: types.AllocationAggregateReservation, *, settings: GceSettings
) -> tuple[str, int, int | None] | Uncounted | Unreadable:
    """(flavor, total, in use) in accelerators: an aggregate reservation is not made of machines."""
    if not settings.slots_per_accelerator:
        return Uncounted("is an aggregate reservation, which cannot be counted in machines: left out")
    reserved = _accelerators(aggregate.reserved_resources)
    if len({name for name, _ in reserved}) != 1:
        return Unreadable("does not reserve exactly one type of accelerator")
    name = reserved[0][0]
    in_use = sum(count for _, count in _accelerators(aggregate.in_use_resources))
    return settings.flavors.get(name, name), sum(count for _, count in reserved), in_use


def _accelerators(
    resources: Sequence[types.AllocationAggregateReservationReservedResourceInfo],
) -> list[tuple[str, int]]:
    return [
        (_last_word(resource.accelerator.accelerator_type), resource.accelerator.accelerator_count)
        for resource in resources
        if "accelerator" in resource
    ]


def _flavor(machine_type: str, accelerators: list[tuple[str, int]], *, settings: GceSettings) -> str:
    shape = ":".join([machine_type, *(f"{name}:{count}" for name, count in accelerators)])
    default = shape if machine_type.startswith(ATTACHED_FAMILIES) else machine_type
    return settings.flavors.get(shape) or settings.flavors.get(machine_type) or default


def _zone_of(place: str) -> str | None:
    """The zone of `zones/Z` or of a longer name or address that ends so; None for any other place."""
    words = place.split("/")
    return words[-1] if len(words) >= 2 and words[-2] == "zones" else None


def _last_word(address: str) -> str:
    """`nvidia-tesla-t4` of an address that ends so: Google writes some names in full and some short."""
    return address.rpartition("/")[2]


def _words(refusal: InvalidInput) -> str:
    return f"has a wrong value: {refusal.field} {refusal.message}"
