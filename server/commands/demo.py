"""`earmark demo`: a node with a small world in it."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import replace
from pathlib import Path

from server.commands.common import Progress, bold, settings_of
from server.demo.traffic import Traffic
from server.demo.world import Builder, World, load_world, save_world
from server.process import Reachable, Server, bring_up_to_date, check_packages, kept_database, listening_socket
from server.settings import Settings
from workers.runtime import Runtime

log = logging.getLogger("earmark.demo")


def run(given: argparse.Namespace) -> int:
    settings = _on_its_own(settings_of(given), given.data_dir)
    check_packages()
    path = settings.data_dir.expanduser() / "demo.json"
    world = load_world(path, root_key=settings.root_key)
    settings = replace(settings, root_key=world.root_key)
    with listening_socket(settings) as listener, kept_database(settings) as kept:
        bring_up_to_date(kept.url)
        save_world(path, world)
        _server_of(settings, kept, world, path, quiet=given.quiet).run([listener])
    return 0


def _on_its_own(settings: Settings, data_dir: Path | None) -> Settings:
    """Never in anybody's database, nor beside a real one: a data directory of its own."""
    if settings.database_url is not None:
        log.warning("the demo leaves EARMARK_DATABASE_URL alone and runs a PostgreSQL of its own")
    return replace(settings, database_url=None, data_dir=data_dir or settings.data_dir / "demo")


def _server_of(settings: Settings, kept: Reachable, world: World, path: Path, *, quiet: bool) -> Server:
    from server.asgi import create_app  # noqa: PLC0415 - a second of imports, after the database is known to be there

    async def fill(node: Runtime) -> None:
        node.supervisor.keep("embedded PostgreSQL", kept.watch)
        builder = Builder(
            node,
            world,
            root_tenant=settings.root_tenant,
            save=lambda built: save_world(path, built),
            progress=Progress("Building a small world"),
        )
        if world.is_built and not await builder.is_there():
            world.is_built, world.began_at, world.tenant_keys = False, 0, {}
        if not world.is_built:
            await builder.build()
        if not quiet:
            traffic = Traffic(node, world, root_tenant=settings.root_tenant)
            node.supervisor.keep("demo traffic", traffic.run)

    app = create_app(settings, kept.url, on_open=fill)
    return Server(app, settings, started=lambda address: print(_guide(address, world), file=sys.stderr, flush=True))


def _guide(address: str, world: World) -> str:
    northwind = world.tenant_keys["northwind"]
    query = '{"query":"{ capacityReservations { nodes { reservationId total inUse grantedNow free } } }"}'
    watch = "subscription { grantEvents(all: true) { cursor type tenantId slots startsAt endsAt } }"
    keys = {"root": world.root_key, **world.tenant_keys}
    return f"""
{bold("Earmark's demo is running")}

  Dashboard  {address}/dashboard   (sign in with a key from below)
  IDE        {address}/            (paste a key at the top)
  GraphQL    {address}/graphql
  REST       {address}/api/compute/reservationGrants

  {bold("Keys")}
{chr(10).join(f"  {name:10} {key}" for name, key in keys.items())}

  {bold("Three things to try")}
  1. What is held, granted and free right now (root):
     curl -s {address}/graphql -H 'Authorization: Bearer {world.root_key}' \\
       -H 'Content-Type: application/json' -d '{query}'
  2. A tenant's own grants, over REST:
     curl -s {address}/api/compute/reservationGrants/list -H 'X-API-Key: {northwind}' -d '{{"tenantId":"northwind"}}'
  3. Watch grants start and end, live, in the IDE with the root key:
     {watch}

Ctrl-C stops it; the world is there again at the next start.
"""
