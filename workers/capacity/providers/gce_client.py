"""Google's client at work: one listing, in a thread, within a time and a size limit. Imported only if installed.

Retries are the client's own (exponential backoff with jitter) for what passes by itself: 429, 502, 503, 504, a rate
limit told as 403, a lost connection. Everything else ends the scan with what was read so far.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

import google.auth
import requests
from google.api_core import exceptions as google_errors
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import compute_v1
from google.cloud.compute_v1.services.reservations.transports.rest import ReservationsRestTransport
from google.oauth2 import service_account
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from domain.capacity.scan import ScanReport
from workers.capacity.providers.gce import ANONYMOUS, GceSettings
from workers.capacity.providers.gce_read import Gathering

SCOPES: Final = ("https://www.googleapis.com/auth/compute.readonly",)
PAGE_RESERVATIONS: Final = 500
"""Reservations asked for in one page: the most that Compute Engine gives."""

PAGES_MAX: Final = 500
"""Pages of one scan. Pages may be small, but a list that never ends is not a list."""

PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of one answer, unpacked: 500 reservations are about one megabyte."""

REQUEST_MS_MAX: Final = 30_000
"""How long a single request may wait for bytes before it counts as lost and is tried again."""

FIRST_WAIT_MS: Final = 200
LONGEST_WAIT_MS: Final = 5_000
"""Bounds of the backoff: short enough that a passing fault does not cost the scan."""

_CHUNK_BYTES: Final = 64 * 1024
_PASSING_STATUSES: Final = {429, 502, 503, 504}


class TroubleError(Exception):
    """The scan cannot go on; the message says why, fit for the operator."""


class BodyError(requests.exceptions.RequestException):
    """An answer was not read to its end; never tried again. The message says why."""


class Deadline:
    """How much of the scan's time is left. It is over at once when nobody waits for the scan any longer."""

    def __init__(self, *, abandoned: threading.Event, limit_ms: int) -> None:
        self._abandoned = abandoned
        self._limit_ms = limit_ms
        self._ends_s = time.monotonic() + limit_ms / 1_000

    def left_s(self) -> float:
        """Seconds left, as the client's libraries count; 0 when it is over."""
        return 0.0 if self._abandoned.is_set() else max(0.0, self._ends_s - time.monotonic())

    def __str__(self) -> str:
        return f"not read in full within {self._limit_ms} ms"


def read_reservations(settings: GceSettings, *, abandoned: threading.Event, limit_ms: int) -> ScanReport:
    """Everything the project's reservations are, or as much as could be read and why not all."""
    gathering = Gathering(settings)
    deadline = Deadline(abandoned=abandoned, limit_ms=limit_ms)
    pages = _pages(settings, deadline)
    while True:
        try:
            page = next(pages, None)
        except Exception as error:  # noqa: BLE001 - the client's errors have no common root, and none may end the job
            gathering.fail(describe(error))
            return gathering.report()
        if page is None:
            return gathering.report()
        gathering.add_page(page)


def _pages(settings: GceSettings, deadline: Deadline) -> Iterator[compute_v1.ReservationAggregatedList]:
    with _client(settings, deadline) as client:
        request = _request(settings.project)
        tokens: set[str] = set()
        for _ in range(PAGES_MAX):
            page = _page(client, request, deadline)
            yield page
            if not page.next_page_token:
                return
            if page.next_page_token in tokens:
                raise TroubleError("the list repeats itself")
            tokens.add(page.next_page_token)
            request.page_token = page.next_page_token
        raise TroubleError(f"the list has more than {PAGES_MAX} pages")


def _page(
    client: compute_v1.ReservationsClient, request: compute_v1.AggregatedListReservationsRequest, deadline: Deadline
) -> compute_v1.ReservationAggregatedList:
    """One page. The client's pager would give every page the whole time again, so only its first one is used."""
    left_s = deadline.left_s()
    if not left_s:
        raise TroubleError(str(deadline))
    retry = Retry(
        predicate=lambda error: deadline.left_s() > 0 and is_passing(error),
        initial=FIRST_WAIT_MS / 1_000,
        maximum=LONGEST_WAIT_MS / 1_000,
        timeout=left_s,
    )
    pager = client.aggregated_list(request=request, retry=retry, timeout=min(left_s, REQUEST_MS_MAX / 1_000))
    return next(pager.pages)


def _request(project: str) -> compute_v1.AggregatedListReservationsRequest:
    """A scope that cannot be reached is to be told, not to fail the list.

    Since API version 2026-09-01 that is always so, and the client no longer has the field.
    """
    fields: dict[str, Any] = {"project": project, "max_results": PAGE_RESERVATIONS}
    if "return_partial_success" in compute_v1.AggregatedListReservationsRequest.meta.fields:
        fields["return_partial_success"] = True
    return compute_v1.AggregatedListReservationsRequest(**fields)


def _client(settings: GceSettings, deadline: Deadline) -> compute_v1.ReservationsClient:
    def transport(**options: Any) -> ReservationsRestTransport:
        return _BoundedTransport(deadline=deadline, **options)

    return compute_v1.ReservationsClient(
        credentials=_credentials(settings),
        client_options=ClientOptions(api_endpoint=settings.api_endpoint),
        transport=transport,
    )


def _credentials(settings: GceSettings) -> Credentials:
    """Read anew for each scan, so that a rotated key is taken up. Their content never reaches a message."""
    if settings.credentials is None:
        credentials, _ = google.auth.default(scopes=SCOPES)
        return credentials
    if settings.credentials == ANONYMOUS:
        return AnonymousCredentials()  # type: ignore[no-untyped-call]
    read_key = service_account.Credentials.from_service_account_file
    try:
        key: Credentials = read_key(settings.credentials, scopes=SCOPES)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise TroubleError(f"the credentials file cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise TroubleError("the credentials file is not a service account's JSON key") from error
    return key


class _BoundedTransport(ReservationsRestTransport):
    """The client's own REST transport, with answers bounded in size and time, and no redirects: an API has none."""

    def __init__(self, *, deadline: Deadline, **options: Any) -> None:
        super().__init__(**options)
        self._session.max_redirects = 0
        # Mutual TLS has put its own adapter there, with the client's certificate.
        if not self._session.is_mtls:
            adapter = _BoundedAdapter(deadline)
            self._session.mount("https://", adapter)
            self._session.mount("http://", adapter)


class _BoundedAdapter(HTTPAdapter):
    """Reads the whole answer itself: `requests` limits neither its size nor the time in which it trickles in."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        response = super().send(request, *args, **{**options, "stream": True})
        try:
            with response:
                return self.build_response(request, _unpacked(response, self._body(response)))
        except HTTPError as error:
            raise requests.exceptions.ConnectionError(error) from error

    def _body(self, response: requests.Response) -> bytes:
        body = bytearray()
        # `read1` gives what has arrived; any other reading waits until a whole block is full.
        while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            body += chunk
            if len(body) > PAGE_BYTES_MAX:
                raise BodyError(f"an answer is larger than {PAGE_BYTES_MAX} bytes")
            if not self._deadline.left_s():
                raise BodyError(str(self._deadline))
        return bytes(body)


def _unpacked(response: requests.Response, body: bytes) -> HTTPResponse:
    """The same answer around a body that is already read and decompressed."""
    headers: Mapping[str, str] = {
        name: value
        for name, value in response.headers.items()
        if name.lower() not in {"content-encoding", "content-length", "transfer-encoding"}
    }
    return HTTPResponse(
        body=io.BytesIO(body),
        headers=headers,
        status=response.status_code,
        reason=response.reason,
        preload_content=False,
    )


def is_passing(error: Exception) -> bool:
    """Whether trying again may help."""
    if isinstance(error, google_errors.GoogleAPICallError):
        return error.code in _PASSING_STATUSES or (error.code == HTTPStatus.FORBIDDEN and _is_rate_limit(error))
    return isinstance(error, requests.exceptions.ConnectionError | requests.exceptions.Timeout)


def _is_rate_limit(error: google_errors.GoogleAPICallError) -> bool:
    return any(detail.get("reason") in {"rateLimitExceeded", "userRateLimitExceeded"} for detail in _details(error))


def _details(error: google_errors.GoogleAPICallError) -> list[Mapping[str, Any]]:
    """The errors that Google lists in its answer; empty when the answer was not Google's."""
    return [detail for detail in error.errors if isinstance(detail, Mapping)]


def describe(error: Exception) -> str:
    """What went wrong, in words: nothing of a request or of credentials, of an answer only Google's own message."""
    if isinstance(error, google_errors.RetryError):
        cause = error.cause
        return f"gave up after repeated tries: {describe(cause) if isinstance(cause, Exception) else 'no answer'}"
    if isinstance(error, google_errors.GoogleAPICallError):
        # The error's own message is no use: it is the address, or the raw text of whatever answered there.
        told = "".join(f": {detail.get('message')}" for detail in _details(error)[:1])
        return f"Compute Engine answered {int(error.code or 0)}{told}"
    if isinstance(error, TroubleError | BodyError):
        return str(error)
    if isinstance(error, GoogleAuthError):
        return f"the credentials could not be used ({type(error).__name__})"
    if isinstance(error, requests.exceptions.RequestException):
        return f"Compute Engine could not be reached ({type(error).__name__})"
    if isinstance(error, ParseError | UnicodeDecodeError):
        return "the answer is not the JSON that Compute Engine documents"
    return f"the client failed ({type(error).__name__})"
