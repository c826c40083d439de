"""Who and what the openb replay needs before its first pod: made through the desks, as scripts would make it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from domain.capacity.commands import Surroundings
from domain.capacity.scan import ReportedReservation
from domain.capacity.state import Reservation, ReservationStatus
from domain.identity import reservation_key
from domain.outcomes import Accepted, Outcome, Refusal
from domain.registry import EVERYBODY
from workers.request import Caller
from workers.runtime import Runtime

PLATFORM: Final = "platform"
POOL: Final = "gpus"
FLAVOR: Final = "gpu"
PROVIDER: Final = "openb"
REGION: Final = "openb"
RESERVATION: Final = "openb/gpus"

TENANT_PREFIX: Final = "qos-"
WHOLE: Final = "whole GPUs"
SHARED: Final = "parts of a GPU"

Answer = TypeVar("Answer")


class ReplayError(Exception):
    """The product refused something that a replay may take for granted, so going on would prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grantee:
    """One class of service as a tenant, with a caller of its own and its two projects."""

    tenant_id: str
    caller: Caller
    whole_project_id: str
    shared_project_id: str

    def project_id(self, *, takes_whole_gpus: bool) -> str:
        return self.whole_project_id if takes_whole_gpus else self.shared_project_id


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    root: Caller
    account_id: str
    grantees: Mapping[str, Grantee]
    """By class of service, as the trace spells it."""
    slots: int
    made_at: int

    @property
    def key(self) -> str:
        return reservation_key(self.account_id, RESERVATION)

    def reservation(self) -> Reservation:
        """The one capacity reservation as it is now: nothing has been asked of it yet."""
        return Reservation(
            key=self.key,
            account_id=self.account_id,
            reservation_id=RESERVATION,
            provider=PROVIDER,
            flavor=FLAVOR,
            region=REGION,
            total=self.slots,
            status=ReservationStatus.READY,
            created_at=self.made_at,
            pool_id=POOL,
        )

    def surroundings(self) -> Surroundings:
        """What decisions may know besides, the same all through the run."""
        tenants = self.grantees.values()
        owners = {
            project_id: tenant.tenant_id
            for tenant in tenants
            for project_id in (tenant.whole_project_id, tenant.shared_project_id)
        }
        return Surroundings(
            platform_tenant_id=PLATFORM,
            tenants=frozenset(tenant.tenant_id for tenant in tenants),
            projects=owners,
            offers=frozenset({(POOL, EVERYBODY)}),
            accounts={self.account_id: PROVIDER},
            pools=frozenset({POOL}),
        )


async def make_world(runtime: Runtime, *, classes: Iterable[str], slots: int, now: int) -> World:
    """Open the node and make tenants, projects, keys, the account, the pool and its reservation of `slots` GPUs."""
    root = await _holder(runtime, await runtime.open(root_tenant=PLATFORM))
    grantees = {qos: await _make_grantee(runtime, root, qos) for qos in classes}
    account = accepted(
        await runtime.accounts.create_provider_account(root, name="the cluster", provider=PROVIDER, kind="push")
    )
    accepted(await runtime.accounts.create_pool(root, pool_id=POOL, name="GPUs of the cluster"))
    accepted(await runtime.accounts.offer_pool(root, pool_id=POOL, offered_to=EVERYBODY))
    seen = ReportedReservation(reservation_id=RESERVATION, flavor=FLAVOR, region=REGION, total=slots)
    account_id = account.account_id
    accepted(await runtime.reservations.report(root, tenant_id=PLATFORM, account_id=account_id, reservations=[seen]))
    accepted(
        await runtime.reservations.bind(
            root, tenant_id=PLATFORM, account_id=account_id, reservation_id=RESERVATION, pool_id=POOL
        )
    )
    return World(root=root, account_id=account_id, grantees=grantees, slots=slots, made_at=now)


def accepted(outcome: Outcome[Answer]) -> Answer:
    """The answer. Raises `ReplayError` for a refusal."""
    if isinstance(outcome, Accepted):
        return outcome.answer
    words = f"{outcome.code}: {outcome.message}" if isinstance(outcome, Refusal) else "a replay of an earlier answer"
    raise ReplayError(f"not expected: {words}")


async def _make_grantee(runtime: Runtime, root: Caller, qos: str) -> Grantee:
    tenant_id = TENANT_PREFIX + qos.lower()
    accepted(await runtime.tenancy.create_tenant(root, tenant_id=tenant_id, name=f"{qos} pods"))
    issued = accepted(await runtime.keys.create_api_key(root, tenant_id=tenant_id, name="replay"))
    caller = await _holder(runtime, issued.secret)
    whole, shared = [
        accepted(await runtime.tenancy.create_project(caller, tenant_id=tenant_id, name=name)).project_id
        for name in (WHOLE, SHARED)
    ]
    return Grantee(tenant_id=tenant_id, caller=caller, whole_project_id=whole, shared_project_id=shared)


async def _holder(runtime: Runtime, secret: str | None) -> Caller:
    """Whoever holds this secret, as a request of theirs would be recognised."""
    principal = await runtime.authenticator.authenticate(secret or "")
    if principal is None:
        raise ReplayError("a key that was just made is not valid: is the database a fresh one?")
    return Caller(principal=principal)
