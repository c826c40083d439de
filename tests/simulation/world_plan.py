"""The world in which written histories play: who exists before the first step, as plain values."""

from __future__ import annotations

from typing import NamedTuple

ROOT = "root"


class ReservationPlan(NamedTuple):
    account_id: str
    reservation_id: str
    pool_id: str
    flavor: str
    region: str
    total: int


class WorldPlan(NamedTuple):
    """Who exists before the first step. Every pool is offered to every tenant of `offers`."""

    root_tenant_id: str
    tenants: tuple[str, ...]
    projects: tuple[tuple[str, str], ...]  # (project id, tenant id)
    accounts: tuple[tuple[str, str], ...]  # (account id, provider)
    offers: tuple[tuple[str, tuple[str, ...]], ...]  # (pool id, tenant ids)
    reservations: tuple[ReservationPlan, ...]


def project_id(letter: str) -> str:
    return "prj_" + letter * 26


ACCOUNT_MAIN = "pacct_" + "0" * 26
ACCOUNT_SIDE = "pacct_" + "1" * 26
POOL_MAIN, POOL_SIDE = "pool-main", "pool-side"

WORLD = WorldPlan(
    root_tenant_id=ROOT,
    tenants=("A", "B", "C", "D"),
    projects=((project_id("a"), "A"), (project_id("b"), "A"), (project_id("c"), "B"), (project_id("d"), "C")),
    accounts=((ACCOUNT_MAIN, "gcp"), (ACCOUNT_SIDE, "gcp")),
    offers=((POOL_MAIN, ("A", "B", "C", ROOT)), (POOL_SIDE, ("A", "B"))),
    reservations=(
        ReservationPlan(ACCOUNT_MAIN, "zone-1/large", POOL_MAIN, "large", "region-1", 10),
        ReservationPlan(ACCOUNT_MAIN, "zone-2/large", POOL_MAIN, "large", "region-2", 3),
        ReservationPlan(ACCOUNT_SIDE, "zone-3/small", POOL_SIDE, "small", "region-1", 5),
    ),
)
