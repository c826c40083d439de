"""A small Compute Engine on 127.0.0.1: gives scripted answers to `aggregated/reservations` and keeps the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PROJECT = "capacity-prod"
LIST_PATH = f"/compute/v1/projects/{PROJECT}/aggregated/reservations"
NO_RESULTS = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for this scope on this page."}}


@dataclass(frozen=True, kw_only=True)
class Request:
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`body` may be a function that writes to the open connection itself; `preface` is one before the answer begins."""

    status: int = 200
    preface: Callable[[Any], None] | None = None
    body: bytes | Callable[[Any], None] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def page(
    items: Mapping[str, Any], *, next_page: str | None = None, unreachables: tuple[str, ...] = (), **more: Any
) -> Answer:
    """One documented answer."""
    content: dict[str, Any] = {"kind": "compute#reservationAggregatedList", "id": "list", "items": items, **more}
    if next_page is not None:
        content["nextPageToken"] = next_page
    if unreachables:
        content["unreachables"] = list(unreachables)
    return Answer(body=json.dumps(content).encode())


def error(status: int, *, reason: str, message: str) -> Answer:
    """One documented error."""
    detail = {"message": message, "domain": "global", "reason": reason}
    return Answer(
        status=status, body=json.dumps({"error": {"code": status, "message": message, "errors": [detail]}}).encode()
    )


def holding(*reservations: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a zone."""
    return {"reservations": list(reservations)}


def reservation(
    name: str, *, zone: str = "europe-west4-a", project: str = PROJECT, status: str = "READY", **specific: Any
) -> dict[str, Any]:
    """A reservation of machines as the API writes it: numbers of 64 bits are strings."""
    address = f"https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}"
    properties = {"machineType": specific.pop("machine_type", "a3-highgpu-8g")}
    if "accelerators" in specific:
        properties["guestAccelerators"] = [
            {"acceleratorType": kind, "acceleratorCount": count} for kind, count in specific.pop("accelerators")
        ]
    counts = {"count": "10", "inUseCount": "4", **specific}
    return {
        "kind": "compute#reservation",
        "id": "5763454763454763454",
        "name": name,
        "zone": address,
        "selfLink": f"{address}/reservations/{name}",
        "status": status,
        "specificReservationRequired": True,
        "specificReservation": {"instanceProperties": properties, **counts},
    }


class ComputeServer:
    """Answers in the scripted order; the last answer is given again and again."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.released = threading.Event()
        self._script: list[Answer] = [Answer(status=500)]
        self._turn = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def answers(self, *script: Answer) -> None:
        self._script = list(script)

    def hang(self, connection: Any) -> None:
        """A body that never comes, until the test is over."""
        del connection
        self.released.wait(60)

    def trickle(self, connection: Any) -> None:
        """Bytes that come in drops and never end."""
        while not self.released.wait(0.02):
            try:
                connection.write(b" ")
                connection.flush()
            except OSError:
                return

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=60)

    def _next(self, request: Request) -> Answer:
        with self._turn:
            self.requests.append(request)
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(address.query).items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = server._next(Request(path=address.path, query=query, headers=headers))
                if answer.preface is not None:
                    answer.preface(self.wfile)
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if callable(answer.body):
                    answer.body(self.wfile)
                else:
                    self.wfile.write(answer.body)

            def log_message(self, *arguments: Any) -> None:
                """Quiet."""

        return Handler
