"""A small believable world: a provider with two reservations, pools, four tenants, grants in every state, instances.

Everything is asked for through the same desks as the API, each request under a fixed idempotency key: building it again
after an interruption finds what is there. Only secrets cannot be asked for again, so each is written down at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from domain.authority import EVERYTHING, Principal
from domain.capacity.scan import ReportedReservation
from domain.outcomes import Accepted, Conflict, Outcome, Refusal
from domain.terms import DAY_MS, HOUR_MS, MINUTE_MS
from server.demo.budgets import build_budgets
from storage.database import read_clock
from workers.authority import new_secret
from workers.request import Caller
from workers.runtime import Runtime

Answer = TypeVar("Answer")

TENANTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "northwind": ("Northwind Research", ("pretraining", "evaluation")),
    "bluefin": ("Bluefin Robotics", ("simulation",)),
    "quarry": ("Quarry Vision", ("labelling", "serving")),
    "lantern": ("Lantern Health", ("imaging",)),
}
"""Tenant id to (name, its projects)."""

RESERVATIONS: Final = (
    {"reservation_id": "zones/us-west4-a/reservations/h100-year", "flavor": "h100", "region": "us-west4", "total": 64},
    {
        "reservation_id": "zones/europe-west4-b/reservations/l4-quarter",
        "flavor": "l4",
        "region": "europe-west4",
        "total": 32,
    },
)

POOLS: Final = {"h100-west": "H100 in the west", "l4-europe": "L4 in Europe"}

WEEK_MS: Final = 7 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGrant:
    """`place`: which reservation. `starts_ms`: from the instant it is made, or ahead from the world's beginning, as
    `ends_ms`. `is_given_up`: ended right away, or cancelled if it has not started."""

    name: str
    place: int
    tenant_id: str
    slots: int
    starts_ms: int = 0
    ends_ms: int
    project: str | None = None
    is_given_up: bool = False


GRANTS: Final = (
    PlannedGrant(name="year", place=0, tenant_id="northwind", slots=24, ends_ms=4 * WEEK_MS, project="pretraining"),
    PlannedGrant(name="first", place=0, tenant_id="northwind", slots=8, starts_ms=-4 * MINUTE_MS, ends_ms=2 * DAY_MS),
    # It renews the one above without a gap.
    PlannedGrant(
        name="renewal", place=0, tenant_id="northwind", slots=8, starts_ms=2 * DAY_MS, ends_ms=2 * DAY_MS + WEEK_MS
    ),
    PlannedGrant(name="robots", place=0, tenant_id="bluefin", slots=12, ends_ms=WEEK_MS),
    PlannedGrant(
        name="soon", place=0, tenant_id="quarry", slots=16, starts_ms=2 * HOUR_MS, ends_ms=2 * HOUR_MS + WEEK_MS
    ),
    PlannedGrant(name="serving", place=1, tenant_id="quarry", slots=10, ends_ms=2 * WEEK_MS, project="serving"),
    PlannedGrant(name="images", place=1, tenant_id="lantern", slots=6, ends_ms=3 * DAY_MS),
    PlannedGrant(
        name="more-images", place=1, tenant_id="lantern", slots=12, starts_ms=3 * DAY_MS, ends_ms=3 * DAY_MS + WEEK_MS
    ),
    PlannedGrant(
        name="trial",
        place=1,
        tenant_id="bluefin",
        slots=4,
        starts_ms=-3 * MINUTE_MS,
        ends_ms=DAY_MS,
        is_given_up=True,
    ),
    PlannedGrant(
        name="dropped",
        place=0,
        tenant_id="lantern",
        slots=2,
        starts_ms=DAY_MS,
        ends_ms=2 * DAY_MS,
        is_given_up=True,
    ),
)

INSTANCES: Final = (
    ("northwind", "pretraining", "h100", 17),
    ("northwind", "evaluation", "h100", 5),
    ("bluefin", "simulation", "h100", 9),
    ("quarry", "serving", "l4", 10),
    ("quarry", "labelling", "l4", 3),
    ("lantern", "imaging", "l4", 4),
)
"""(tenant, project, flavor, how many run)."""


PLAN_MS: Final = HOUR_MS
"""How long an interrupted build keeps to the instants it began with, so that renewals still meet."""

STEPS: Final = 8
"""Parts of the build, for a progress bar."""


@dataclass(slots=True)
class World:
    """What the demo remembers between starts, in a file that only its owner can read."""

    root_key: str
    tenant_keys: dict[str, str] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)
    """`tenant/project name` to project id."""
    account_id: str = ""
    began_at: int = 0
    """The instant that terms are counted from, epoch ms."""
    is_built: bool = False


class DemoRefused(Exception):  # noqa: N818 - says why the world cannot be built
    """A desk said no where the demo expected yes: somebody has used the demo's database for something else."""


def load_world(path: Path, *, root_key: str | None) -> World:
    """The world as it was left, or a new one with a root key of its own."""
    if path.exists():
        world = World(**json.loads(path.read_text()))
        world.root_key = root_key or world.root_key
        return world
    return World(root_key=root_key or new_secret())


def save_world(path: Path, world: World) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(world), file, indent=2)
    draft.rename(path)


def root_caller(tenant_id: str) -> Caller:
    principal = Principal(key_id="demo", tenant_id=tenant_id, is_root=True, permissions=frozenset({EVERYTHING}))
    return Caller(principal=principal)


def tenant_caller(tenant_id: str) -> Caller:
    principal = Principal(key_id="demo", tenant_id=tenant_id, is_root=False, permissions=frozenset({EVERYTHING}))
    return Caller(principal=principal)


def must(outcome: Outcome[Answer]) -> Answer:
    """The answer of a request that cannot be refused here. Raises `DemoRefused`."""
    if isinstance(outcome, Accepted):
        return outcome.answer
    reason = outcome.message if isinstance(outcome, Refusal) else repr(outcome)
    raise DemoRefused(f"the demo world cannot be built: {reason}; try another --data-dir")


class Builder:
    """Builds the world through the desks of a running node. `save` writes it down, `progress` is told (done, total)."""

    def __init__(
        self,
        node: Runtime,
        world: World,
        *,
        root_tenant: str,
        save: Callable[[World], None] = lambda _: None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        self._node = node
        self._world = world
        self._root = root_caller(root_tenant)
        self._tenant = root_tenant
        self._save = save
        self._progress = progress

    async def build(self) -> None:
        """The whole world. Interrupted at any point, a second call completes it."""
        steps = (
            self._tenants,
            self._keys,
            self._account,
            self._pools,
            self._reservations,
            self._grants,
            self._instances,
            self._budgets,
        )
        assert len(steps) == STEPS
        now = await instant(self._node)
        if not self._world.began_at <= now < self._world.began_at + PLAN_MS:
            self._world.began_at = now
        for done, step in enumerate(steps, start=1):
            await step()
            self._save(self._world)
            self._progress(done, STEPS)
        self._world.is_built = True
        self._save(self._world)

    async def is_there(self) -> bool:
        """Whether what was built is still in the database: its folder may have been thrown away beside ours."""
        found = await self._node.accounts.get_account(self._root, account_id=self._world.account_id)
        return self._world.is_built and isinstance(found, Accepted)

    async def _tenants(self) -> None:
        tenancy = self._node.tenancy
        for tenant_id, (name, projects) in TENANTS.items():
            key = f"t-{tenant_id}"
            must(await tenancy.create_tenant(self._root, tenant_id=tenant_id, name=name, idempotency_key=key))
            for project in projects:
                made = await tenancy.create_project(
                    self._root, tenant_id=tenant_id, name=project, idempotency_key=f"p-{tenant_id}-{project}"
                )
                self._world.projects[f"{tenant_id}/{project}"] = must(made).project_id

    async def _keys(self) -> None:
        for tenant_id in TENANTS:
            if tenant_id not in self._world.tenant_keys:
                issued = must(await self._node.keys.create_api_key(self._root, tenant_id=tenant_id, name="demo"))
                self._world.tenant_keys[tenant_id] = issued.secret or ""
                self._save(self._world)

    async def _account(self) -> None:
        account = await self._node.accounts.create_provider_account(
            self._root, name="Google Cloud, main project", provider="gcp", kind="push", idempotency_key="account"
        )
        self._world.account_id = must(account).account_id

    async def _pools(self) -> None:
        accounts = self._node.accounts
        for pool_id, name in POOLS.items():
            must(await accounts.create_pool(self._root, pool_id=pool_id, name=name, idempotency_key=pool_id))
            offer = {"pool_id": pool_id, "offered_to": "*", "idempotency_key": f"offer-{pool_id}"}
            must(await accounts.offer_pool(self._root, **offer))

    async def _reservations(self) -> None:
        must(await report(self._node, self._root, self._world.account_id, RESERVATIONS))
        for reservation, pool_id in zip(RESERVATIONS, POOLS, strict=True):
            place = {"tenant_id": self._tenant, "account_id": self._world.account_id}
            bound = await self._node.reservations.bind(
                self._root, **place, reservation_id=reservation["reservation_id"], pool_id=pool_id
            )
            must(bound)

    async def _grants(self) -> None:
        now = await instant(self._node)
        for plan in GRANTS:
            grant_id = await self._grant(plan, now=now)
            if plan.is_given_up:
                place = {"tenant_id": self._tenant, "account_id": self._world.account_id}
                must(await self._node.grants.end(self._root, **place, grant_id=grant_id))

    async def _grant(self, plan: PlannedGrant, *, now: int) -> str:
        """The grant of this name. One that an interrupted build has made began a little earlier: another request under
        the same key, whose refusal names it."""
        is_ahead = plan.starts_ms > 0
        made = await self._node.grants.create(
            self._root,
            tenant_id=self._tenant,
            account_id=self._world.account_id,
            reservation_id=RESERVATIONS[plan.place]["reservation_id"],
            grant_tenant_id=plan.tenant_id,
            project_id=self._world.projects[f"{plan.tenant_id}/{plan.project}"] if plan.project else None,
            slots=plan.slots,
            starts_at=(self._world.began_at if is_ahead else now) + plan.starts_ms,
            ends_at=self._world.began_at + plan.ends_ms,
            idempotency_key=f"g-{plan.name}",
        )
        if isinstance(made, Conflict) and made.grant_id is not None:
            return made.grant_id
        return must(made).grant.grant_id

    async def _instances(self) -> None:
        for tenant_id, project, flavor, count in INSTANCES:
            for number in range(count):
                outcome = await self._node.instances.create(
                    tenant_caller(tenant_id),
                    tenant_id=tenant_id,
                    project_id=self._world.projects[f"{tenant_id}/{project}"],
                    flavor=flavor,
                    name=f"{project}-{number:02}",
                    idempotency_key=f"i-{tenant_id}-{project}-{number}",
                )
                must(outcome)

    async def _budgets(self) -> None:
        for tenant_id in TENANTS:
            await build_budgets(self._node, tenant_caller(tenant_id))


async def instant(node: Runtime) -> int:
    """The instant, by the clock that decides."""
    async with node.database.acquire() as connection:
        return node.clock.instant(await read_clock(connection))


async def report(node: Runtime, root: Caller, account_id: str, reservations: Any) -> Outcome[tuple[str, ...]]:
    """What the provider's agent would push."""
    shown = [ReportedReservation(**reservation) for reservation in reservations]
    return await node.reservations.report(
        root, tenant_id=root.principal.tenant_id, account_id=account_id, reservations=shown, complete=True
    )
