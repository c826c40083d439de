"""Agent frameworks behind the official middleware, as their users install them, against a live server (section 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.live import Live, run
from tests.edges.cycles.world import TENANT, ok, usd

pytestmark = pytest.mark.timeout(900)  # the first run installs the frameworks


async def actions_of(live: Live) -> list[tuple[str, str, int]]:
    """(kind, status, charged) of all reservations, the oldest first."""
    rows = ok(await live.world.get("/v1/reservations", sort_dir="asc"))["reservations"]
    return [(row["action"]["kind"], row["status"], row.get("committed", {}).get("amount", 0)) for row in rows]


async def test_a_langchain_agent_pays_for_its_models_and_tools(live: Live, agents_python: Path) -> None:
    await live.world.budget(TENANT, usd(10**9))  # the gate for fan-out asks in microcents, whatever the others do
    said = await run(agents_python, "langchain_agent", live.environment())
    assert said["allowed"] == ["go", "", "abababababababababab", "done"]
    assert said["denied"][-1] == "done"
    assert "BUDGET_EXCEEDED" in said["denied"][2], "the tool was not run, and the model was told why"
    model, tool = ("llm.completion", "COMMITTED", 60), ("tool.search", "COMMITTED", 20)
    assert await actions_of(live) == [model, tool, model, model, model]
    assert await live.world.numbers(TENANT, "spent", "reserved") == (4 * 60 + 20, 0)


async def test_an_openai_agent_pays_for_its_models_and_tools(live: Live, agents_python: Path) -> None:
    said = await run(agents_python, "openai_agent", live.environment())
    assert said["output"] == "done"
    assert said["tripped"] == {"decision": "DENY", "reason": "BUDGET_EXCEEDED"}
    model, tool = ("llm.completion", "COMMITTED", 40), ("tool.search", "COMMITTED", 25)
    actions = await actions_of(live)
    # The guardrail runs beside the second agent's model, which may have been asked by the time it trips.
    assert actions[:3] == [model, tool, model]
    assert await live.world.numbers(TENANT, "spent", "reserved") == (sum(paid for _, _, paid in actions), 0)
