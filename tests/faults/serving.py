"""`earmark serve` as processes of their own, and steps of the simulation asked over GraphQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

from storage.database import Connection, connect
from storage.embedded import EmbeddedPostgres
from tests.capacity_world import eventually
from tests.faults.vanishing import Vanish
from tests.simulation.histories import Step
from tests.simulation.oracle_rows import Outcome
from tests.simulation.world_plan import ROOT

EARMARK = Path(sys.executable).with_name("earmark")
START_WITHIN_MS = 120_000
"""Three seconds on an idle machine; this is for one where everything else runs too."""


STOP_WITHIN_S = 60


class Served:
    """One server process: started, killed without a word, started again at the same address. `settings` besides."""

    def __init__(self, url: str, *, root_key: str, port: int, folder: Path, **settings: str) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._arguments = [str(EARMARK), "serve", "--port", str(port)]
        mine = {"EARMARK_DATABASE_URL": url, "EARMARK_ROOT_KEY": root_key, "EARMARK_LOG_LEVEL": "warning"}
        mine |= {f"EARMARK_{name.upper()}": value for name, value in settings.items()}
        others = {name: value for name, value in os.environ.items() if not name.startswith("EARMARK_")}
        self._environment = {**others, **mine}
        self._log = folder / f"{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._arguments, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """As an operator stops it: what was begun is answered. The exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_WITHIN_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def ready(self, client: httpx.AsyncClient) -> None:
        async def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self._log.read_text()
            try:
                return (await client.get(f"{self.address}/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(answers, timeout_ms=START_WITHIN_MS)


async def kill_postgres(server: EmbeddedPostgres, *, only_a_backend: bool = False) -> None:
    """The whole server, which then is started again; or one backend, after which it starts all others anew itself."""
    connection = await connect(server.dsn)
    pid = connection.get_server_pid() if only_a_backend else server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await _is_cut_off(connection)
    await asyncio.to_thread(server.start)


async def _is_cut_off(connection: Connection) -> None:
    """Return once its backend is dead, as all others are then or in a moment."""

    async def is_closed() -> bool:
        return connection.is_closed()

    await eventually(is_closed)


@asynccontextmanager
async def turns_held_up(url: str, heads: str) -> AsyncIterator[None]:
    """While the block runs a turn is under way for certain: it waits for the table `heads`, whose rows nobody may lock.

    For kills of the server, which end the wait.
    """
    holder = await connect(url)
    await holder.execute(f"begin; set local lock_timeout = '60s'; lock table {heads} in exclusive mode")

    async def is_waited_for() -> bool:
        waits = "select exists (select 1 from pg_locks where not granted and relation = $1::text::regclass)"
        return bool(await holder.fetchval(waits, heads))

    await eventually(is_waited_for)
    yield
    holder.terminate()


MUTATIONS = {
    "create_grant": ("createGrant", "CreateGrantInput", "Grant"),
    "end_grant": ("endGrant", "EndGrantInput", "Grant"),
    "amend_grant": ("amendGrant", "AmendGrantInput", "Grant"),
    "create_instance_of_flavor": ("createInstance", "CreateInstanceInput", "Instance"),
    "start_instance": ("startInstance", "InstanceInput", "Instance"),
    "stop_instance": ("stopInstance", "InstanceInput", "Instance"),
    "delete_instance": ("deleteInstance", "InstanceInput", "Instance"),
}
WIRE_NAMES = {"version": "expectedVersion", "key": "idempotencyKey"}
COME_AGAIN = frozenset({"UNAVAILABLE", "OVERLOADED"})


class GraphQLClient:
    """Steps as mutations, each with the key of who may ask it: root for grants, the tenant for its instances."""

    def __init__(self, client: httpx.AsyncClient, root_key: str) -> None:
        self._client = client
        self._secrets = {ROOT: root_key}
        self._owners: dict[str, str] = {}
        self.vanish: Vanish | None = None

    async def make_keys(self, address: str, tenants: tuple[str, ...]) -> None:
        query = (
            "mutation ($input: CreateApiKeyInput!) "
            "{ made: createApiKey(input: $input) { ... on CreatedApiKey { secret } } }"
        )
        for tenant_id in tenants:
            given = {"tenantId": tenant_id, "name": "a client"}
            answer = await self._post(address, query, given, secret=self._secrets[ROOT])
            assert answer is not None
            self._secrets[tenant_id] = answer["data"]["made"]["secret"]

    def note_owner(self, instance_id: str, tenant_id: str) -> None:
        """Of an instance that was not made here."""
        self._owners[instance_id] = tenant_id

    async def send(self, address: str, step: Step, key: str) -> Outcome | None:
        """The outcome in the simulation's words; None when nobody knows whether there was one."""
        field, kind, shown = MUTATIONS[step.command]
        query = (
            f"mutation ($input: {kind}!) {{ made: {field}(input: $input) {{ __typename "
            f"... on {shown} {{ id }} ... on Refusal {{ code }} }} }}"
        )
        asker = self._asker(step)
        given = {_wire_name(name): value for name, value in {"key": key, **step.arguments}.items()}
        if shown == "Instance":
            given |= {"tenantId": asker} | ({"name": "an instance"} if field == "createInstance" else {})
        answer = await self._post(address, query, given, secret=self._secrets[asker])
        if answer is None:
            return None
        made = answer["data"]["made"]
        if made["__typename"] != shown:
            return (made["code"], {})
        if field == "createInstance":
            self._owners[made["id"]] = asker
        return ("ok", made["id"])

    def _asker(self, step: Step) -> str:
        if "instance_id" in step.arguments:
            return self._owners[step.arguments["instance_id"]]
        return str(step.arguments["tenant_id"])

    async def _post(self, address: str, query: str, given: dict[str, Any], *, secret: str) -> dict[str, Any] | None:
        body = {"query": query, "variables": {"input": given}}
        headers = {"authorization": f"Bearer {secret}"}
        if self.vanish is not None and await self.vanish(address, "/graphql", headers, json.dumps(body).encode()):
            return None
        try:
            response = await self._client.post(f"{address}/graphql", json=body, headers=headers)
        except httpx.TransportError:
            return None
        answer: dict[str, Any] = response.json()
        errors = answer.get("errors", [])
        if any(error.get("extensions", {}).get("code") in COME_AGAIN for error in errors):
            return None
        assert not errors, (given, answer)
        return answer


def _wire_name(name: str) -> str:
    head, *rest = WIRE_NAMES.get(name, name).split("_")
    return head + "".join(word.capitalize() for word in rest)
