"""Plays a written history on the naive model: labels become ids, refused labels stay unknown."""

from __future__ import annotations

from typing import Any

from tests.simulation.histories import START_AT, Step
from tests.simulation.oracle import Oracle
from tests.simulation.oracle_rows import Outcome
from tests.simulation.world_plan import WORLD, WorldPlan

SKIPPED: Outcome = ("SKIPPED", {})
ID_OF_REFERENCE = {"grant": "grant_id", "instance": "instance_id", "existing": "existing_id"}


def new_world(plan: WorldPlan = WORLD, *, model: type[Oracle] = Oracle) -> Oracle:
    oracle = model(plan.root_tenant_id)
    for tenant_id in plan.tenants:
        oracle.add_tenant(tenant_id)
    for project, tenant_id in plan.projects:
        oracle.add_project(project, tenant_id=tenant_id)
    for account_id, provider in plan.accounts:
        oracle.add_account(account_id, provider=provider)
    for pool_id, tenant_ids in plan.offers:
        oracle.add_pool(pool_id, offered_to=set(tenant_ids))
    for reservation in plan.reservations:
        oracle.add_reservation(**reservation._asdict())
    return oracle


class Player:
    """One oracle, the labels so far, and every outcome in order."""

    def __init__(self, oracle: Oracle | None = None) -> None:
        self.oracle = oracle or new_world()
        self.ids: dict[str, str] = {}
        self.outcomes: list[Outcome] = []
        self.now = START_AT

    def play(self, step: Step) -> Outcome:
        """Runs one step; SKIPPED when it names a grant or an instance that was refused."""
        self.now = step.at
        arguments = self.resolved(step)
        outcome = SKIPPED if arguments is None else getattr(self.oracle, step.command)(step.at, **arguments)
        if step.label is not None and outcome[0] == "ok":
            self.ids[step.label] = str(outcome[1])
        self.outcomes.append(outcome)
        return outcome

    def play_all(self, history: list[Step]) -> Player:
        for step in history:
            self.play(step)
        return self

    def resolved(self, step: Step) -> dict[str, Any] | None:
        """The arguments with ids in place of labels; None when a label is unknown."""
        arguments = dict(step.arguments)
        for reference, name in ID_OF_REFERENCE.items():
            if reference in arguments:
                label = arguments.pop(reference)
                if label not in self.ids:
                    return None
                arguments[name] = self.ids[label]
        if "stale" in arguments:
            grant = self.oracle.grants.get(arguments["grant_id"])
            version = 1 if grant is None else grant.version
            arguments["version"] = version - 1 if arguments.pop("stale") else version
        return arguments
