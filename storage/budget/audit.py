"""The books of budgets held against their own history, for tests and for an operator's check: rows as they lie there.

Every query finds what must not be (section 2.3), so that nothing found is a clean bill. They know nothing of the code that
wrote the rows. The caller's transaction is a repeatable read, or rows of different moments will not agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.database import AnyConnection


@dataclass(frozen=True, slots=True)
class Breach:
    """Something that must not be."""

    rule: str
    tenant_id: str
    what: str


# What every settlement put on each of its budgets: of the charge, the part that became debt, and the rest as spent.
_SETTLED: Final = """
with settled as (
    select r.tenant_id, s.scope, r.unit, r.charged, coalesce(r.debts[s.place], 0) as debt
    from budget_reservation r, unnest(r.budgeted_scopes) with ordinality s (scope, place)
    where r.tenant_id = any ($1) and r.status = 'COMMITTED'
    union all
    select d.tenant_id, s.scope, d.unit, d.charged, coalesce(d.debts[s.place], 0)
    from budget_debit d, unnest(d.budgeted_scopes) with ordinality s (scope, place)
    where d.tenant_id = any ($1)
), charges as (
    select tenant_id, scope, unit, sum(charged - debt) as spent, sum(debt) as debt from settled group by 1, 2, 3
), funded as (
    select tenant_id, budget_id, sum((after ->> 'spent')::numeric - (before ->> 'spent')::numeric) as spent,
        sum((after ->> 'debt')::numeric - (before ->> 'debt')::numeric) as debt
    from budget_funding where tenant_id = any ($1) group by 1, 2
)
"""

RULES: Final[Mapping[str, str]] = {
    "I1 what remains follows from the rest": """
select tenant_id, format('%s %s', scope_path, unit) as what from budget
where tenant_id = any ($1) and remaining <> allocated - spent - reserved - debt
""",
    "I2 reserved is the sum of the active holds": """
select b.tenant_id, format('%s %s: %s reserved, %s held', b.scope_path, b.unit, b.reserved, coalesce(h.held, 0)) as what
from budget b left join (
    select r.tenant_id, s.scope, r.unit, sum(r.estimate) as held
    from budget_reservation r, unnest(r.budgeted_scopes) s (scope)
    where r.tenant_id = any ($1) and r.status = 'ACTIVE' group by 1, 2, 3
) h on h.tenant_id = b.tenant_id and h.scope = b.scope_path and h.unit = b.unit
where b.tenant_id = any ($1) and b.reserved <> coalesce(h.held, 0)
""",
    "I3 no amount is negative": """
select tenant_id, format('%s %s', scope_path, unit) as what from budget
where tenant_id = any ($1) and least(allocated, reserved, spent, debt, overdraft_limit) < 0
""",
    "I4 a reservation has one end, and its answer tells it": """
with told as (
    select tenant_id, split_part(operation, '/', 2) as reservation_id, count(*) as times,
        min(case when operation like 'budget.commit/%' then 'COMMITTED' else 'RELEASED' end) as status,
        min((answer ->> 'charged')::bigint) as charged
    from budget_answer
    where tenant_id = any ($1) and (operation like 'budget.commit/%' or operation like 'budget.release/%')
    group by 1, 2
)
select r.tenant_id, format('%s is %s and was answered %s times', r.reservation_id, r.status, a.times) as what
from budget_reservation r join told a on a.tenant_id = r.tenant_id and a.reservation_id = r.reservation_id
where r.tenant_id = any ($1) and (a.times > 1 or a.status <> r.status or a.charged is distinct from r.charged)
""",
    "I5 a debit is charged once under its key": """
select tenant_id, idempotency_key as what from budget_debit where tenant_id = any ($1)
group by tenant_id, idempotency_key having count(*) > 1
""",
    "I6 what is held has a budget in its unit": """
select r.tenant_id, format('%s on %s', r.reservation_id, s.scope) as what
from budget_reservation r cross join unnest(r.budgeted_scopes) s (scope)
left join budget b on b.tenant_id = r.tenant_id and b.scope_path = s.scope and b.unit = r.unit
where r.tenant_id = any ($1) and b.budget_id is null
""",
    "I7 spent and debt are what was charged, on every budget alike": f"""{_SETTLED}
select b.tenant_id, format('%s %s: %s spent, %s in debt; charged %s and %s', b.scope_path, b.unit, b.spent, b.debt,
    coalesce(c.spent, 0) + coalesce(f.spent, 0), coalesce(c.debt, 0) + coalesce(f.debt, 0)) as what
from budget b
left join charges c on c.tenant_id = b.tenant_id and c.scope = b.scope_path and c.unit = b.unit
left join funded f on f.tenant_id = b.tenant_id and f.budget_id = b.budget_id
where b.tenant_id = any ($1) and (
    b.spent <> coalesce(c.spent, 0) + coalesce(f.spent, 0) or b.debt <> coalesce(c.debt, 0) + coalesce(f.debt, 0)
)
""",
    "each funding begins where the last one ended": """
select tenant_id, format('%s of %s', funding_id, budget_id) as what from (
    select f.*, lag(after ->> 'allocated') over (partition by tenant_id, budget_id order by created_at, funding_id) as last
    from budget_funding f where tenant_id = any ($1)
) f where last <> before ->> 'allocated'
union all
select b.tenant_id, b.budget_id from budget b join (
    select distinct on (tenant_id, budget_id) * from budget_funding where tenant_id = any ($1)
    order by tenant_id, budget_id, created_at desc, funding_id desc
) f on f.tenant_id = b.tenant_id and f.budget_id = b.budget_id
where b.tenant_id = any ($1) and (f.after ->> 'allocated')::bigint <> b.allocated
""",
    "I8 only a live reserve makes a reservation": """
with told as (
    select tenant_id, idempotency_key, answered_at, answer ->> 'reservation_id' as reservation_id from budget_answer
    where tenant_id = any ($1) and operation = 'budget.reserve'
), kept as (
    select tenant_id, min(answered_at) as since from told group by 1
)
select a.tenant_id, format('%s is told and is not there', a.reservation_id) as what
from told a left join budget_reservation r on r.tenant_id = a.tenant_id and r.reservation_id = a.reservation_id
where a.reservation_id is not null and r.reservation_id is null
union all
select r.tenant_id, format('%s is there and was not told', r.reservation_id)
from budget_reservation r join kept k on k.tenant_id = r.tenant_id and r.created_at >= k.since
left join told a on a.tenant_id = r.tenant_id and a.idempotency_key = r.idempotency_key
    and a.reservation_id = r.reservation_id
where r.tenant_id = any ($1) and a.tenant_id is null
""",
    "nothing of a closed tenant is open": """
select t.tenant_id, b.budget_id as what from budget_tenant t join budget b on b.tenant_id = t.tenant_id
where t.tenant_id = any ($1) and t.status = 'CLOSED' and b.status <> 'CLOSED'
union all
select t.tenant_id, r.reservation_id from budget_tenant t join budget_reservation r on r.tenant_id = t.tenant_id
where t.tenant_id = any ($1) and t.status = 'CLOSED' and r.status = 'ACTIVE'
union all
select t.tenant_id, k.key_id from budget_tenant t join api_key k on k.tenant_id = t.tenant_id
where t.tenant_id = any ($1) and t.status = 'CLOSED' and k.revoked_at is null
""",
    "no hold is over before the tenant is looked at": """
select t.tenant_id, r.reservation_id as what from budget_tenant t join budget_reservation r on r.tenant_id = t.tenant_id
where t.tenant_id = any ($1) and r.status = 'ACTIVE' and r.settles_until + 1 < coalesce(t.next_expiry_at, r.settles_until + 2)
""",
    "events are numbered without a gap": """
select s.tenant_id, format('%s events, numbers %s to %s', count(e.seq), s.first_seq, s.last_seq) as what
from event_stream s left join event e on e.tenant_id = s.tenant_id
where s.tenant_id = any ($1) group by s.tenant_id, s.first_seq, s.last_seq
having count(e.seq) <> s.last_seq - s.first_seq + 1
""",
}


async def find_breaches(connection: AnyConnection, tenant_ids: Sequence[str]) -> list[Breach]:
    """Everything about these tenants that must not be."""
    found: list[Breach] = []
    for rule, sql in RULES.items():
        rows = await connection.fetch(sql, list(tenant_ids))
        found.extend(Breach(rule, row["tenant_id"], row["what"]) for row in rows)
    return found
