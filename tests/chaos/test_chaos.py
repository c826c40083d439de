"""Every act of chaos in its short form. `make chaos` does more of each, with another seed every time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from storage.embedded import EmbeddedPostgres
from tests.chaos.acts import ACTS, Act, Place, placed
from tests.chaos.command import play_one, told
from tests.chaos.scene import Log, Scene
from tests.databases import durable_server

SEED = 1


@pytest.fixture(scope="module")
def postgres() -> Iterator[EmbeddedPostgres]:
    with durable_server() as server:
        yield server


class Scenes:
    """The nodes of the place where the last act was: the next one finds them as it left them, if all was well."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self._stack = AsyncExitStack()
        self._open: tuple[Place, Scene] | None = None

    async def at(self, place: Place) -> Scene:
        if self._open is None or self._open[0] is not place:
            await self.close()
            scene = placed(place, self._postgres, seed=SEED, say=Log(print), is_short=True)
            self._open = (place, await self._stack.enter_async_context(scene))
        return self._open[1]

    async def close(self) -> None:
        self._open = None
        await self._stack.aclose()


@pytest.fixture(scope="module")
async def scenes(postgres: EmbeddedPostgres) -> AsyncIterator[Scenes]:
    made = Scenes(postgres)
    yield made
    await made.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
async def test_whatever_is_done_to_it_the_books_and_all_replies_agree(scenes: Scenes, act: Act) -> None:
    scene = await scenes.at(act.place)
    try:
        await play_one(act, scene)
    except Exception as error:  # noqa: BLE001 - told with what the nodes say of it
        logs = "\n".join(server.log[-2_000:] for server in scene.stage.servers)
        await scenes.close()
        pytest.fail(f"{told(error)}\n{logs}")
