"""P10: commands that are sent to two nodes in one moment come to what some serial order of them comes to.

The order is looked for on copies of the naive model, one command after the other; a branch ends where an answer or a
placement differs from the product's. What the whole burst leaves behind must be equal too.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Iterator, Sequence

from domain.identity import split_reservation_key
from storage.database import Connection, Row
from tests.simulation.agreed_oracle import AgreedOracle
from tests.simulation.histories import Step
from tests.simulation.player import SKIPPED
from tests.simulation.product import Played
from tests.simulation.twin import Twin, is_placed_alike, mirrored

TOGETHER = frozenset(
    {
        "create_grant",
        "end_grant",
        "amend_grant",
        "create_instance",
        "start_instance",
        "move_instance",
        "stop_instance",
        "delete_instance",
        "attach_instance",
        "bind",
        "unbind",
    }
)
"""Commands on one reservation, as a rule. Those on several are one decision a reservation: they are sent alone."""
WANDERING = frozenset({"start_instance", "move_instance"})
"""Those of them that may look at several: what they come to rests on the floors of all."""
BURST_MAX = 4

Answered = tuple[Step, Played]
Left = dict[str, tuple[object, ...]]


def bursts(history: Sequence[Step]) -> Iterator[list[Step]]:
    """The history in stretches that can be sent at once: none names what another one of its stretch makes."""
    burst: list[Step] = []
    for step in history:
        made = {other.label for other in burst}
        named = {step.arguments.get(word) for word in ("grant", "instance", "existing")} - {None}
        fits = step.command in TOGETHER and len(burst) < BURST_MAX and not named & made and step.label not in made
        if burst and not fits:
            yield burst
            burst = []
        burst.append(step)
        if step.command not in TOGETHER:
            yield burst
            burst = []
    if burst:
        yield burst


async def play_burst(twin: Twin, burst: Sequence[Step]) -> None:
    """All at the instant of the last one. Fails when no serial order explains the answers and what is left behind."""
    twin.now = twin.clock.now = burst[-1].at
    prepared = [twin.prepared(step._replace(at=twin.now)) for step in burst]
    steps = [step for step in prepared if step is not None]
    twin.outcomes += [SKIPPED] * (len(burst) - len(steps))
    played = await asyncio.gather(
        *(
            twin.product.play(step, key=twin.next_key(), node=number % len(twin.product.nodes))
            for number, step in enumerate(steps)
        )
    )
    await twin.product.nodes[0].boundaries.run_once()
    left = await _left_behind(twin.connection)
    answered = list(zip(steps, played, strict=True))
    for oracle, order in serial_orders(twin.oracle, answered):
        oracle.advance(twin.now)
        if _expected_behind(oracle) == left:
            twin.oracle = oracle
            for step, answer in order:
                twin.remember(step, answer.outcome)
            return
    story = "\n".join(f"{step} gave {answer}" for step, answer in answered)
    raise AssertionError(f"no serial order explains\n{story}")


def serial_orders(
    oracle: AgreedOracle, answered: Sequence[Answered], done: Sequence[Answered] = ()
) -> Iterator[tuple[AgreedOracle, Sequence[Answered]]]:
    """Models after every order of the commands in which each gives the answer that the product gave."""
    if not answered:
        yield oracle, done
    for position, (step, played) in enumerate(answered):
        branch = copy.deepcopy(oracle)
        if mirrored(branch, step, played) == played.outcome and is_placed_alike(branch, played):
            others = [*answered[:position], *answered[position + 1 :]]
            yield from serial_orders(branch, others, [*done, (step, played)])


async def _left_behind(connection: Connection) -> Left:
    """Grants, instances and their billing as the tables have them: an order may show in the bill alone."""
    segments = await connection.fetch("select * from capacity_segment where to_at is distinct from from_at")
    grants = await connection.fetch("select * from capacity_grant")
    instances = await connection.fetch("select * from capacity_instance where moved_to is null")
    return {
        **{row["grant_id"]: (row["slots"], row["starts_at"], row["ends_at"], row["cancelled_at"]) for row in grants},
        **{row["instance_id"]: _place_of(row) for row in instances},
        "segments": _in_order(
            (row["instance_id"], row["from_at"], row["to_at"], row["mode"], row["grant_id"]) for row in segments
        ),
    }


def _place_of(row: Row) -> tuple[object, ...]:
    is_on_it = row["attached"] and row["run_state"] != "deleted"
    place = split_reservation_key(row["key"]) if is_on_it else None
    return row["run_state"], row["project_id"], row["grant_id"], place


def _expected_behind(oracle: AgreedOracle) -> Left:
    grants, instances = oracle.grants.values(), oracle.instances.values()
    return {
        **{each.grant_id: (each.slots, each.starts_at, each.ends_at, each.cancelled_at) for each in grants},
        **{each.instance_id: (each.state, each.project_id, each.grant_id, each.reservation_key) for each in instances},
        "segments": _in_order(
            (each.instance_id, each.from_ms, each.to_ms, each.mode, each.grant_id) for each in oracle.segments
        ),
    }


def _in_order(segments: Iterable[tuple[object, ...]]) -> tuple[object, ...]:
    return tuple(sorted(segments, key=str))
