"""The public GraphQL-over-HTTP audits: all of them, not only the obligatory ones."""

from __future__ import annotations

from tests.conformance.live import Live, run_node
from tests.schema.world import ROOT_KEY

AUDITS = 61


async def test_every_audit_passes(live: Live) -> None:
    results = await run_node("audits.mjs", {"EARMARK_URL": live.url, "EARMARK_KEY": ROOT_KEY})

    assert [result for result in results if result["status"] != "ok"] == []
    assert len(results) == AUDITS
