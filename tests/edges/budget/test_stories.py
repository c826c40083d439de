"""Every story, once over each edge."""

from __future__ import annotations

import pytest

from tests.edges.budget.course_stories import OWNING, REPEATING, TIMING
from tests.edges.budget.edge import BudgetEdge
from tests.edges.budget.funding_stories import FUNDING
from tests.edges.budget.holding_stories import RESERVING, SETTLING
from tests.edges.budget.story import Player, Story, retold
from tests.edges.cycles.world import ACME, World

STORIES = (*RESERVING, *SETTLING, *FUNDING, *REPEATING, *TIMING, *OWNING)


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.name)
async def test_the_story_is_the_same_over_both_edges(
    stage: World, stage_edge: BudgetEdge, cast: dict[str, str], told: Story
) -> None:
    await Player(stage, stage_edge, cast[ACME]).play(retold(told, cast))
