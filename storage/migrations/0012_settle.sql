-- Deciding from memory: one statement that asks whether everything holds that the decisions rest on, and writes them.

-- Writes a turn that was decided without a lock, if the database agrees that it could have been decided under one: every
-- head still has the version that was known; the clock, read after the locks, is ahead of `p_clock` by less than
-- `p_valid_ms`, within which nothing falls due; tenants, projects, accounts and offers are what they were taken for; and
-- nothing was answered before under the keys of what is not to be remembered. Otherwise it writes nothing and says why.
-- It never waits for a lock: a head that somebody else holds is about to move on, and waiting is what the lock mode does.
-- `p_written` are the heads that change, `p_seen` those that were only looked at; the rest is as `capacity_flush` takes it.
create function capacity_settle(
    p_clock bigint, p_valid_ms bigint, p_written text[], p_written_versions bigint[], p_seen text[],
    p_seen_versions bigint[], p_tenants text[], p_projects text[], p_project_tenants text[], p_accounts text[],
    p_providers text[], p_offer_pools text[], p_offer_tenants text[], p_owners text[], p_operations text[],
    p_idempotency_keys text[], p_heads json, p_new_grants json, p_grants json, p_instances json, p_segments json,
    p_outbox json, p_locators json, p_answers json, out verdict text, out now_ms bigint
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
    for i in 1..cardinality(p_written) loop
        perform 1 from capacity_reservation r where r.key = p_written[i] and r.version = p_written_versions[i]
            for no key update skip locked;
        if not found then
            verdict := 'moved';
            exit;
        end if;
    end loop;
    if verdict is null and cardinality(p_seen) > 0 and exists (
        select 1 from unnest(p_seen, p_seen_versions) d (key, version)
        where not exists (
            select 1 from capacity_reservation r
            where r.key = any (p_seen) and r.key = d.key and r.version = d.version offset 0
        )
    ) then
        verdict := 'moved';
    end if;
    now_ms := floor(extract(epoch from clock_timestamp()) * 1000)::bigint;
    if verdict is not null then
        return;
    elsif now_ms < p_clock then
        verdict := 'set back';
        return;
    elsif now_ms - p_clock >= p_valid_ms then
        verdict := 'late';
        return;
    end if;
    if (select count(*) from tenant t where t.tenant_id = any (p_tenants) and t.deleted_at is null)
            <> cardinality(p_tenants)
        or (select count(*) from provider_account a join unnest(p_accounts, p_providers) d (account_id, provider)
            on a.account_id = d.account_id and a.provider = d.provider
            where a.account_id = any (p_accounts) and a.deleted_at is null) <> cardinality(p_accounts)
        or (select count(*) from pool_offer o join unnest(p_offer_pools, p_offer_tenants) d (pool_id, tenant_id)
            on o.pool_id = d.pool_id and o.tenant_id = d.tenant_id
            where o.pool_id = any (p_offer_pools)) <> cardinality(p_offer_pools)
        or (cardinality(p_projects) > 0 and (
            select count(*) from project p join unnest(p_projects, p_project_tenants) d (project_id, tenant_id)
            on p.project_id = d.project_id and p.tenant_id = d.tenant_id
            where p.project_id = any (p_projects) and p.deleted_at is null) <> cardinality(p_projects))
    then
        verdict := 'changed';
        return;
    end if;
    if cardinality(p_owners) > 0 and exists (
        select 1 from unnest(p_owners, p_operations, p_idempotency_keys) k (owner, operation, idempotency_key),
            lateral (
                select 1 from answer a
                where a.owner = k.owner and a.operation = k.operation and a.idempotency_key = k.idempotency_key offset 0
            ) a
    ) then
        verdict := 'answered';
        return;
    end if;
    perform capacity_flush(
        p_written[1], p_written, p_heads, p_new_grants, p_grants, p_instances, p_segments, p_outbox, p_locators, p_answers
    );
    verdict := 'settled';
end $$;
