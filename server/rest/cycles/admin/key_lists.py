"""Lists of API keys (11.2): an operator's, of one tenant or of all."""

from __future__ import annotations

from domain.outcomes import Refusal
from server.rest.cycles.admin.keys import show_key
from server.rest.cycles.admin.reading import lenient_list_of, search_of
from server.rest.cycles.exchange import Answer, Exchange, Reply
from server.rest.cycles.listings import page
from workers.budget.reads import KeyQuery, KeySort, KeyStatus


async def list_(exchange: Exchange) -> Answer:
    query = exchange.query()
    tenant_id = query.text("tenant_id")
    wanted = KeyQuery(
        tenant_id=tenant_id,
        status=query.choice("status", KeyStatus),
        search=search_of(query),
        sort_by=query.choice("sort_by", KeySort, folds=True) or KeySort.CREATED_AT,
        descending=query.is_descending(),
    )
    found = await exchange.runtime.budget_reads.keys(exchange.caller, query=wanted, **lenient_list_of(query))
    if isinstance(found, Refusal):
        return found
    return Reply(page("keys", [show_key(seen.key, seen.status) for seen in found.items], found), owner=tenant_id)
