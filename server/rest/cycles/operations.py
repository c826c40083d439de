"""How operations are put together from who may ask for them."""

from __future__ import annotations

from domain.authority import Permission
from server.rest.cycles.exchange import Access, Handle, Operation
from server.rest.cycles.failures import Plane
from workers.budget.evidence import Artifact
from workers.budget.rights import Right


def runtime_operation(
    handle: Handle,
    right: Right,
    *,
    access: Access = Access.TENANT,
    has_body: bool = True,
    artifact: Artifact | None = None,
) -> Operation:
    """`artifact`: what its answer is evidence of, where evidence is wanted."""
    own, admin = _words(right)
    return Operation(handle, access, Plane.RUNTIME, own=own, admin=admin, has_body=has_body, artifact=artifact)


def admin_operation(
    name: str, handle: Handle, right: Right | None, *, access: Access = Access.ADMIN, has_body: bool = False
) -> Operation:
    """`name`: the protocol's own, as the audit log has it."""
    own, admin = _words(right)
    return Operation(handle, access, Plane.ADMIN, own=own, admin=admin, has_body=has_body, name=name)


def _words(right: Right | None) -> tuple[tuple[Permission, ...], tuple[Permission, ...]]:
    """What it takes in the caller's own tenant, and as an operator."""
    own = (right.own,) if right is not None and right.own is not None else ()
    admin = (right.admin,) if right is not None and right.admin is not None else ()
    return own, admin
