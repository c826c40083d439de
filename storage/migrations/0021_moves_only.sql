-- A turn writes what has changed, not whole rows: of a head and of balances that moved, of a hold that ended. Taking rows
-- out of JSON, all their columns, was a good part of what a batch of commands cost.

drop function budget_settle(
    bigint, bigint, text[], bigint[], text[], bigint[], text[], text[], text[], json, json, json, json, json, json, json,
    json, json, json, json, json
);
drop function budget_flush(
    text, text[], json, json, json, json, json, json, json, json, json, json, json, json
);
drop function capacity_settle(
    bigint, bigint, text[], bigint[], text[], bigint[], text[], text[], text[], text[], text[], text[], text[], text[],
    text[], text[], json, json, json, json, json, json, json, json
);
drop function capacity_flush(text, text[], json, json, json, json, json, json, json, json);

-- Rows that an update is joined to. They are functions that claim to give one row, so that a plan always goes from them to
-- the table by its key, however few rows the table was believed to have when the plan was made.
create function budget_balances(p_rows json) returns table (
    tenant_id text, scope_path text, unit text, budget_id text, allocated bigint, reserved bigint, spent bigint, debt bigint,
    capped boolean, updated_at bigint
)
language sql volatile rows 1 as $$
    select * from json_to_recordset(p_rows) d (
        tenant_id text, scope_path text, unit text, budget_id text, allocated bigint, reserved bigint, spent bigint,
        debt bigint, capped boolean, updated_at bigint
    )
$$;
create function budget_holds(p_rows json) returns table (
    tenant_id text, reservation_id text, expires_at bigint, extensions_used bigint, status text, charged bigint,
    debts bigint[], finalized_at bigint, committed_metadata json, metrics json, release_reason text
)
language sql volatile rows 1 as $$
    select * from json_to_recordset(p_rows) d (
        tenant_id text, reservation_id text, expires_at bigint, extensions_used bigint, status text, charged bigint,
        debts bigint[], finalized_at bigint, committed_metadata json, metrics json, release_reason text
    )
$$;

-- Writes one turn: everything or nothing. Heads carry the version they become; a head that moved on aborts it all, and so
-- does a reservation that is not active any more (I4). Heads and budgets come whole where they are new or were governed;
-- otherwise only what a command can move. `on conflict` finds each row by its key, whatever was believed of a young table.
create function budget_flush(
    p_route text, p_tenants text[], p_heads json, p_moved_heads json, p_budgets json, p_balances json,
    p_new_holds json, p_holds json, p_answers json, p_outbox json, p_debits json, p_fundings json, p_policies json,
    p_windows json, p_audit json, p_registry json, p_revoked json
) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    written integer := 0;
    moved integer := 0;
begin
    if p_registry is not null then
        -- Without an instant of making, it is there already and has another name.
        insert into tenant (tenant_id, name, created_at)
        select tenant_id, name, created_at from json_populate_recordset(null::tenant, p_registry)
        where created_at is not null order by tenant_id;
        update tenant t set name = d.name from json_populate_recordset(null::tenant, p_registry) d
        where t.tenant_id = any (p_tenants) and t.tenant_id = d.tenant_id and d.created_at is null and t.name <> d.name;
    end if;
    if p_heads is not null then
        insert into budget_tenant as b select * from json_populate_recordset(null::budget_tenant, p_heads)
        on conflict (tenant_id) do update
        set status = excluded.status, metadata = excluded.metadata,
            default_overage_policy = excluded.default_overage_policy, default_ttl_ms = excluded.default_ttl_ms,
            max_ttl_ms = excluded.max_ttl_ms, max_extensions = excluded.max_extensions,
            expiry_policy = excluded.expiry_policy, denies_on_any_debt = excluded.denies_on_any_debt,
            extension_lead_max_ms = excluded.extension_lead_max_ms, clock_at = excluded.clock_at,
            suspended_at = excluded.suspended_at, closed_at = excluded.closed_at, updated_at = excluded.updated_at,
            next_expiry_at = excluded.next_expiry_at, version = excluded.version, outbox_seq = excluded.outbox_seq
        where b.tenant_id = any (p_tenants) and b.version = excluded.version - 1;
        get diagnostics written = row_count;
    end if;
    if p_moved_heads is not null then
        update budget_tenant b
        set clock_at = d.clock_at, next_expiry_at = d.next_expiry_at, version = d.version, outbox_seq = d.outbox_seq
        from json_to_recordset(p_moved_heads) d (
            tenant_id text, clock_at bigint, next_expiry_at bigint, version bigint, outbox_seq bigint
        )
        where b.tenant_id = any (p_tenants) and b.tenant_id = d.tenant_id and b.version = d.version - 1;
        get diagnostics moved = row_count;
    end if;
    if written + moved <> cardinality(p_tenants) then
        raise exception 'a tenant has moved on' using errcode = '40001';
    end if;
    if p_answers is not null then
        insert into budget_answer select * from json_populate_recordset(null::budget_answer, p_answers);
    end if;
    if p_budgets is not null then
        insert into budget as b (
            tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
            commit_overage_policy, caps, rollover_policy, period_start_at, period_end_at, metadata, created_at,
            updated_at, closed_at
        )
        select tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
            commit_overage_policy, caps, rollover_policy, period_start_at, period_end_at, metadata, created_at,
            updated_at, closed_at
        from json_populate_recordset(null::budget, p_budgets)
        on conflict (tenant_id, scope_path, unit) do update
        set allocated = excluded.allocated, reserved = excluded.reserved, spent = excluded.spent,
            debt = excluded.debt, overdraft_limit = excluded.overdraft_limit, capped = excluded.capped,
            status = excluded.status, commit_overage_policy = excluded.commit_overage_policy,
            metadata = excluded.metadata, updated_at = excluded.updated_at, closed_at = excluded.closed_at
        where b.tenant_id = any (p_tenants) and b.budget_id = excluded.budget_id;
        get diagnostics written = row_count;
        if written <> json_array_length(p_budgets) then
            raise exception 'a budget is another one' using errcode = '40001';
        end if;
    end if;
    if p_balances is not null then
        update budget b
        set allocated = d.allocated, reserved = d.reserved, spent = d.spent, debt = d.debt, capped = d.capped,
            updated_at = d.updated_at
        from budget_balances(p_balances) d
        where b.tenant_id = any (p_tenants) and b.tenant_id = d.tenant_id and b.scope_path = d.scope_path
            and b.unit = d.unit and b.budget_id = d.budget_id;
        get diagnostics written = row_count;
        if written <> json_array_length(p_balances) then
            raise exception 'a budget is another one' using errcode = '40001';
        end if;
    end if;
    if p_new_holds is not null then
        insert into budget_reservation (
            tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
            overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, metadata,
            charged, debts, finalized_at, committed_metadata, metrics, release_reason
        )
        select tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
            overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, metadata,
            charged, debts, finalized_at, committed_metadata, metrics, release_reason
        from json_populate_recordset(null::budget_reservation, p_new_holds);
    end if;
    if p_holds is not null then
        update budget_reservation r
        set expires_at = d.expires_at, extensions_used = d.extensions_used, status = d.status, charged = d.charged,
            debts = d.debts, finalized_at = d.finalized_at, committed_metadata = d.committed_metadata,
            metrics = d.metrics, release_reason = d.release_reason
        from budget_holds(p_holds) d
        -- Still active, but not said so: a partial index of what is would be as good to the plan, and is not.
        where r.tenant_id = any (p_tenants) and r.tenant_id = d.tenant_id and r.reservation_id = d.reservation_id
            and r.status <> all ('{COMMITTED,RELEASED,EXPIRED}');
        get diagnostics written = row_count;
        if written <> json_array_length(p_holds) then
            raise exception 'a budget reservation has ended' using errcode = '40001';
        end if;
    end if;
    if p_outbox is not null then
        insert into budget_outbox select * from json_populate_recordset(null::budget_outbox, p_outbox);
    end if;
    if p_debits is not null then
        insert into budget_debit select * from json_populate_recordset(null::budget_debit, p_debits);
    end if;
    if p_fundings is not null then
        insert into budget_funding select * from json_populate_recordset(null::budget_funding, p_fundings);
    end if;
    if p_policies is not null then
        insert into budget_policy as p select * from json_populate_recordset(null::budget_policy, p_policies)
        on conflict (tenant_id, policy_id) do update
        set name = excluded.name, description = excluded.description, priority = excluded.priority,
            caps = excluded.caps, commit_overage_policy = excluded.commit_overage_policy,
            ttl_override = excluded.ttl_override, rate_limits = excluded.rate_limits, status = excluded.status,
            effective_from_at = excluded.effective_from_at, effective_until_at = excluded.effective_until_at,
            updated_at = excluded.updated_at
        where p.tenant_id = any (p_tenants);
    end if;
    if p_windows is not null then
        insert into budget_rate_window as w select * from json_populate_recordset(null::budget_rate_window, p_windows)
        on conflict (tenant_id, policy_id, kind) do update
        set minute_at = excluded.minute_at, count = excluded.count where w.tenant_id = any (p_tenants);
    end if;
    if p_audit is not null then
        insert into budget_audit select * from json_populate_recordset(null::budget_audit, p_audit);
    end if;
    if p_revoked is not null then
        update api_key k set revoked_at = d.revoked_at
        from json_populate_recordset(null::api_key, p_revoked) d
        where k.tenant_id = any (p_tenants) and k.key_id = d.key_id and k.revoked_at is null;
    end if;
end $$;

-- The same for budgets as capacity_settle: writes a turn that was decided from memory if everything still holds that it
-- rests on, and otherwise says why not. Decisions about budgets ask about nothing but their tenant's own books.
create function budget_settle(
    p_clock bigint, p_valid_ms bigint, p_written text[], p_written_versions bigint[], p_seen text[],
    p_seen_versions bigint[], p_owners text[], p_operations text[], p_idempotency_keys text[], p_heads json,
    p_moved_heads json, p_budgets json, p_balances json, p_new_holds json, p_holds json, p_answers json, p_outbox json,
    p_debits json, p_fundings json, p_policies json, p_windows json, p_audit json, p_registry json, p_revoked json,
    out verdict text, out now_ms bigint
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
    for i in 1..cardinality(p_written) loop
        perform 1 from budget_tenant b where b.tenant_id = p_written[i] and b.version = p_written_versions[i]
            for no key update skip locked;
        if not found then
            verdict := 'moved';
            exit;
        end if;
    end loop;
    if verdict is null and cardinality(p_seen) > 0 and exists (
        select 1 from unnest(p_seen, p_seen_versions) d (tenant_id, version)
        where not exists (
            select 1 from budget_tenant b
            where b.tenant_id = any (p_seen) and b.tenant_id = d.tenant_id and b.version = d.version offset 0
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
    if cardinality(p_owners) > 0 and exists (
        select 1 from unnest(p_owners, p_operations, p_idempotency_keys) k (tenant_id, operation, idempotency_key),
            lateral (
                select 1 from budget_answer a
                where a.tenant_id = any (p_owners) and a.tenant_id = k.tenant_id
                    and a.operation = k.operation and a.idempotency_key = k.idempotency_key offset 0
            ) a
    ) then
        verdict := 'answered';
        return;
    end if;
    if cardinality(p_written) > 0 then
        perform budget_flush(
            p_written[1], p_written, p_heads, p_moved_heads, p_budgets, p_balances, p_new_holds, p_holds, p_answers,
            p_outbox, p_debits, p_fundings, p_policies, p_windows, p_audit, p_registry, p_revoked
        );
    end if;
    verdict := 'settled';
end $$;

-- Writes one turn: everything or nothing. Heads carry the version they become; a head that moved on aborts it all. They
-- come whole where more than their clock, their next boundary and their numbers has changed.
create function capacity_flush(
    p_route text, p_keys text[], p_heads json, p_moved_heads json, p_new_grants json, p_grants json, p_instances json,
    p_segments json, p_outbox json, p_locators json, p_answers json
) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    written integer := 0;
    moved integer := 0;
    inserted integer := 0;
begin
    if p_heads is not null then
        update capacity_reservation r
        set flavor = d.flavor, region = d.region, total = d.total, status = d.status, pool_id = d.pool_id,
            external_in_use = d.external_in_use, clock_at = d.clock_at, total_seq = d.total_seq, gone_at = d.gone_at,
            missed_scans = d.missed_scans, next_boundary_at = d.next_boundary_at, version = d.version,
            outbox_seq = d.outbox_seq
        from json_populate_recordset(null::capacity_reservation, p_heads) d
        where r.key = any (p_keys) and r.key = d.key and r.version = d.version - 1;
        get diagnostics written = row_count;
    end if;
    if p_moved_heads is not null then
        update capacity_reservation r
        set clock_at = d.clock_at, next_boundary_at = d.next_boundary_at, version = d.version, outbox_seq = d.outbox_seq
        from json_to_recordset(p_moved_heads) d (
            key text, clock_at bigint, next_boundary_at bigint, version bigint, outbox_seq bigint
        )
        where r.key = any (p_keys) and r.key = d.key and r.version = d.version - 1;
        get diagnostics moved = row_count;
    end if;
    if p_heads is not null and written + moved < cardinality(p_keys) then
        insert into capacity_reservation
            select d.* from json_populate_recordset(null::capacity_reservation, p_heads) d where d.version = 1;
        get diagnostics inserted = row_count;
    end if;
    if written + moved + inserted <> cardinality(p_keys) then
        raise exception 'a reservation has moved on' using errcode = '40001';
    end if;
    if p_answers is not null then
        insert into answer
            select d.* from json_populate_recordset(null::answer, p_answers) d
            order by d.owner, d.operation, d.idempotency_key;
    end if;
    if p_new_grants is not null then
        insert into capacity_grant (
            key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version, turn
        )
        select key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version, turn
        from json_populate_recordset(null::capacity_grant, p_new_grants);
    end if;
    if p_grants is not null then
        insert into capacity_grant as g (
            key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version, turn
        )
        select key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version, turn
        from json_populate_recordset(null::capacity_grant, p_grants)
        on conflict (key, grant_id) do update
        set slots = excluded.slots, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
            cancelled_at = excluded.cancelled_at, ended_reason = excluded.ended_reason,
            started_applied = excluded.started_applied, ended_applied = excluded.ended_applied,
            commitments = excluded.commitments, version = excluded.version, turn = excluded.turn;
    end if;
    if p_instances is not null then
        insert into capacity_instance select * from json_populate_recordset(null::capacity_instance, p_instances)
        on conflict (key, instance_id) do update
        set project_id = excluded.project_id, run_state = excluded.run_state, billing = excluded.billing,
            grant_id = excluded.grant_id, attached = excluded.attached, segment_count = excluded.segment_count,
            moved_to = excluded.moved_to, turn = excluded.turn;
    end if;
    if p_segments is not null then
        insert into capacity_segment as s (key, instance_id, number, from_at, to_at, mode, grant_id, project_id)
        select key, instance_id, number, from_at, to_at, mode, grant_id, project_id
        from json_populate_recordset(null::capacity_segment, p_segments)
        on conflict (key, instance_id, number) do update set to_at = excluded.to_at;
    end if;
    if p_locators is not null then
        insert into capacity_locator select * from json_populate_recordset(null::capacity_locator, p_locators);
    end if;
    if p_outbox is not null then
        insert into capacity_outbox select * from json_populate_recordset(null::capacity_outbox, p_outbox);
    end if;
end $$;

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
    p_idempotency_keys text[], p_heads json, p_moved_heads json, p_new_grants json, p_grants json, p_instances json,
    p_segments json, p_outbox json, p_locators json, p_answers json, out verdict text, out now_ms bigint
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
        p_written[1], p_written, p_heads, p_moved_heads, p_new_grants, p_grants, p_instances, p_segments, p_outbox,
        p_locators, p_answers
    );
    verdict := 'settled';
end $$;
