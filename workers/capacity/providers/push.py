"""Accounts whose agent reports by itself: `reportReservations` carries all it sees, and nothing is scanned.

A push account has no settings. The scan job skips it (`scans` is False): between two reports nothing is known, so
nothing is concluded. A report is the whole view of the account: a reservation that a complete report leaves out is
gone (R54), so an agent that could not see everything says `complete: false`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from domain.capacity.scan import ReportedReservation, ScanReport
from domain.outcomes import InvalidInput
from workers.capacity.providers.entries import check_reservation, repeated_ids
from workers.capacity.providers.protocol import ProviderAccountConfig, bounded, incomplete
from workers.capacity.providers.settings import check_keys

PUSHED_MAX: Final = 2_000
"""Reservations of one report: all of it is one request, and others wait while it is read."""


class PushProvider:
    """The kind `push`."""

    name = "push"
    scans = False

    def validate_settings(self, settings: Mapping[str, Any]) -> InvalidInput | None:
        """Refused: any setting at all."""
        return check_keys(settings, known=())

    async def scan(self, account: ProviderAccountConfig) -> ScanReport:
        """Never a look: an incomplete report, so that a caller who forgets to skip the account concludes nothing."""
        return incomplete(f"account {account.account_id} is not scanned: its agent reports by itself")


def report_from_push(
    reservations: Sequence[ReportedReservation], *, complete: bool = True, problems: Iterable[str] = ()
) -> ScanReport | InvalidInput:
    """A pushed report as a scan would have made it.

    Refused, in this order: more than `PUSHED_MAX` reservations (field `reservations`), the first reservation
    with a wrong value (`reservations[3].total`), the first id given twice (`reservations[3].reservationId`).
    """
    if len(reservations) > PUSHED_MAX:
        message = f"a report holds at most {PUSHED_MAX} reservations, not {len(reservations)}"
        return InvalidInput(field="reservations", message=message, reason="too-many")
    for index, reservation in enumerate(reservations):
        refusal = check_reservation(reservation)
        if refusal is not None:
            return _placed(refusal, index)
    for index, first in repeated_ids(reservations):
        message = f"is the same as of reservations[{first}]"
        return _placed(InvalidInput(field="reservationId", message=message, reason="duplicate"), index)
    told = bounded(problems)
    if not complete and not told:
        told = ("the agent says that it could not see everything",)
    return ScanReport(reservations=tuple(reservations), complete=complete, problems=told)


def _placed(refusal: InvalidInput, index: int) -> InvalidInput:
    field = f"reservations[{index}].{refusal.field}"
    return replace(refusal, field=field, message=f"{field} {refusal.message}")
