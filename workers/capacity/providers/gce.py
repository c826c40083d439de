"""Accounts that are Google Compute Engine projects: their zonal reservations, read through Google's own client.

The client is optional (`pip install 'earmark[gce]'`); without it a scan is incomplete and says so. The permission
needed is `compute.reservations.list` on the project.

Settings (`*` required):

- `project`*: the id (not the number) of the project that owns the reservations. A shared reservation is listed by its
  owner project only, with the use of all consumer projects in its count; so it belongs to one account and is never
  counted twice.
- `zones`: only these zones. One that the answer does not mention makes the scan incomplete: a mistyped zone would
  otherwise look like a zone in which everything is gone.
- `credentials`: the absolute path of a service account's JSON key on the server, or `anonymous` (an emulator), or
  absent for Application Default Credentials. The key is read anew on each scan, and no part of it is ever logged or
  shown.
- `apiEndpoint`: another address of the API, `https://….googleapis.com` (private access), or any address when
  `credentials` is `anonymous`: real credentials are sent to Google alone.
- `slotsPer`: `instance` (default: a slot is one machine) or `accelerator` (a slot is one GPU or TPU chip).
- `acceleratorsPerInstance`: {machine type: number}, for `slotsPer: accelerator` where a reservation does not list them.
- `flavors`: {shape: flavor}. A shape is `a3-highgpu-8g`, or `n1-standard-8:nvidia-tesla-t4:2` where accelerators are
  listed with the machine type; the longer form is tried first. Without a match the flavor is the machine type, with
  the accelerators behind it for the machine types to which they are attached one by one (N1): those are different
  machines.

What becomes what: the reservation id is `projects/P/zones/Z/reservations/NAME`, Google's own relative name; the
region is the zone without its last part; `total` is `specificReservation.count`, `in_use` is `inUseCount` (each times
the accelerators of one machine where those are the slots); `ready` is status READY and no other: capacity that is
being created, resized or deleted is not promised anew. When fewer are usable than reserved (`assuredCount`), a remark
says so and `total` stays what is reserved. Aggregate reservations (TPU) are counted in accelerators only, and left
out with a remark where a slot is a machine.

Complete means: every page of every wanted zone was read, without an unreachable zone and without a warning other than
NO_RESULTS_ON_PAGE (R54, D12), and everything on it was understood.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from domain.capacity.scan import ScanReport
from domain.identity import FLAVOR
from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import shown
from workers.capacity.providers.protocol import ProviderAccountConfig, incomplete
from workers.capacity.providers.settings import check_choice, check_keys, check_text, refuse
from workers.capacity.providers.threads import BlockingCalls, StillRunningError

SCAN_MS_MAX: Final = 60_000
"""One scan with its retries: all pages of a large project take seconds; a scan ends before the next is due."""

OVERTIME_MS: Final = 2_000
"""How much longer the event loop waits for the thread, which ends by itself and so keeps the pages it has read."""

ZONES_MAX: Final = 200
"""Zones in one filter: Google has about 130."""

SHAPES_MAX: Final = 500
"""Entries of `flavors` and of `acceleratorsPerInstance`: more than there are machine types."""

ANONYMOUS: Final = "anonymous"
ACCELERATORS_MAX: Final = 1_024
"""Accelerators of one machine, far above any that exists."""

_SETTINGS: Final = (
    "project", "zones", "credentials", "apiEndpoint", "slotsPer", "acceleratorsPerInstance", "flavors",
)  # fmt: skip
_PROJECT: Final = re.compile(r"(?:[a-z0-9][a-z0-9.-]{0,61}[a-z0-9]:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_ZONE: Final = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")
_CREDENTIALS: Final = re.compile(r"anonymous|/[^\x00-\x1f\x7f]{1,1000}")
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?/?")
_SHAPE: Final = re.compile(r"[a-z0-9][a-z0-9:-]{0,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GceSettings:
    """The settings of one account, checked. No `zones` means every zone; no `credentials` means the server's own."""

    project: str
    zones: frozenset[str] = frozenset()
    credentials: str | None = field(default=None, repr=False)
    api_endpoint: str | None = None
    slots_per_accelerator: bool = False
    accelerators_per_instance: Mapping[str, int] = field(default_factory=dict)
    flavors: Mapping[str, str] = field(default_factory=dict)


class GceProvider:
    """The kind `gce`."""

    name = "gce"
    scans = True

    def __init__(self, *, scan_ms_max: int = SCAN_MS_MAX, overtime_ms: int = OVERTIME_MS) -> None:
        self._scan_ms_max = scan_ms_max
        self._overtime_ms = overtime_ms
        self._calls = BlockingCalls()

    def validate_settings(self, settings: Mapping[str, Any]) -> InvalidInput | None:
        """Refused: unknown keys, each setting in the order of the module's list, an endpoint that is not Google's."""
        return (
            check_keys(settings, known=_SETTINGS)
            or check_text(settings, "project", _PROJECT, words="a project id such as my-project-1", required=True)
            or _check_zones(settings.get("zones"))
            or check_text(settings, "credentials", _CREDENTIALS, words="an absolute path or anonymous")
            or check_text(settings, "apiEndpoint", _ENDPOINT, words="an address such as https://compute.googleapis.com")
            or check_choice(settings, "slotsPer", ("instance", "accelerator"))
            or _check_accelerators(settings.get("acceleratorsPerInstance"))
            or _check_flavors(settings.get("flavors"))
            or _check_endpoint_trust(settings)
        )

    async def scan(self, account: ProviderAccountConfig) -> ScanReport:
        """List the reservations in a thread, within `scan_ms_max`. What was read before trouble stays in the report."""
        refusal = self.validate_settings(account.settings)
        if refusal is not None:
            return incomplete(refusal.message)
        settings = read_settings(account.settings)
        try:
            return await self._calls.call(
                account.account_id,
                lambda abandoned: _read(settings, abandoned=abandoned, limit_ms=self._scan_ms_max),
                limit_ms=self._scan_ms_max + self._overtime_ms,
            )
        except TimeoutError:
            return incomplete(f"Compute Engine did not answer in full within {self._scan_ms_max} ms")
        except StillRunningError:
            return incomplete("an earlier scan of this account still hangs; no second one was started")


def read_settings(settings: Mapping[str, Any]) -> GceSettings:
    """Settings that `validate_settings` accepts, typed."""
    return GceSettings(
        project=settings["project"],
        zones=frozenset(settings.get("zones") or ()),
        credentials=settings.get("credentials"),
        api_endpoint=settings.get("apiEndpoint"),
        slots_per_accelerator=settings.get("slotsPer") == "accelerator",
        accelerators_per_instance=settings.get("acceleratorsPerInstance") or {},
        flavors=settings.get("flavors") or {},
    )


def _read(settings: GceSettings, *, abandoned: threading.Event, limit_ms: int) -> ScanReport:
    try:
        # Not at the top: the client is optional, and loading it takes seconds that the event loop does not have.
        client = importlib.import_module("workers.capacity.providers.gce_client")
    except ImportError as error:
        return incomplete(f"Google's client is not installed ({error.name}): pip install 'earmark[gce]'")
    report: ScanReport = client.read_reservations(settings, abandoned=abandoned, limit_ms=limit_ms)
    return report


def _check_zones(zones: object) -> InvalidInput | None:
    if zones is None:
        return None
    if not isinstance(zones, list | tuple) or not 0 < len(zones) <= ZONES_MAX:
        return refuse("zones", f"must be a list of 1 to {ZONES_MAX} zones, not {shown(zones)}")
    for index, zone in enumerate(zones):
        if not isinstance(zone, str) or not _ZONE.fullmatch(zone):
            return refuse(f"zones[{index}]", f"must be a zone such as europe-west4-a, not {shown(zone)}")
    return None


def _check_accelerators(table: object) -> InvalidInput | None:
    def checked(count: object) -> bool:
        return isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= ACCELERATORS_MAX

    return _check_table("acceleratorsPerInstance", table, checked, words=f"a whole number from 0 to {ACCELERATORS_MAX}")


def _check_flavors(table: object) -> InvalidInput | None:
    def checked(flavor: object) -> bool:
        return isinstance(flavor, str) and FLAVOR.fullmatch(flavor) is not None

    return _check_table("flavors", table, checked, words=f"text like {FLAVOR.pattern}")


def _check_table(name: str, table: object, checked: Callable[[object], bool], *, words: str) -> InvalidInput | None:
    if table is None:
        return None
    if not isinstance(table, Mapping) or len(table) > SHAPES_MAX:
        return refuse(name, f"must be an object of at most {SHAPES_MAX} machine types, not {shown(table)}")
    for shape, value in table.items():
        if not isinstance(shape, str) or not _SHAPE.fullmatch(shape):
            return refuse(name, f"has a key that is no machine type: {shown(shape)}")
        if not checked(value):
            return refuse(f"{name}.{shape}", f"must be {words}, not {shown(value)}")
    return None


def _check_endpoint_trust(settings: Mapping[str, Any]) -> InvalidInput | None:
    """Whoever may create accounts must not have the server's credentials sent to an address of their choice."""
    endpoint = settings.get("apiEndpoint")
    if endpoint is None or settings.get("credentials") == ANONYMOUS:
        return None
    address = urlsplit(endpoint)
    if address.scheme == "https" and (address.hostname or "").endswith(".googleapis.com"):
        return None
    message = "must be an https address under googleapis.com, unless credentials is anonymous"
    return refuse("apiEndpoint", message, reason="untrusted-endpoint")
