"""kill -9 of what the work depends on."""

from __future__ import annotations

from tests.chaos.scene import Scene
from tests.faults.serving import kill_postgres


async def kill_nodes(scene: Scene) -> None:
    """One node after another dies in mid-batch and comes back; clients go to the other one."""
    async with scene.loaded():
        for _ in range(scene.size(short=1, long=4)):
            await scene.more_answers()
            server = scene.chance.choice(scene.stage.servers)
            before = scene.stage.budgets.unanswered + scene.stage.capacity.unanswered
            server.kill()
            scene.say(f"killed the node at {server.address}")
            await scene.stage.budgets.more_unanswered()
            await scene.more_answers()
            await scene.stage.restart(server)
            lost = scene.stage.budgets.unanswered + scene.stage.capacity.unanswered - before
            scene.say(f"it is back; {lost} requests were not answered and sent again")
        await scene.more_answers()


async def kill_the_database(scene: Scene) -> None:
    """PostgreSQL dies whole, and one backend of it, which makes it end all the others."""
    async with scene.loaded():
        for only_a_backend in scene.chance.sample(
            [False, True] * scene.size(short=1, long=2), k=2 * scene.size(short=1, long=2)
        ):
            await scene.more_answers()
            await kill_postgres(scene.postgres, only_a_backend=only_a_backend)
            scene.say("killed a backend of PostgreSQL" if only_a_backend else "killed PostgreSQL, and started it")
            await scene.more_answers()
