-- The same for budgets as capacity_settle: writes a turn that was decided from memory if everything still holds that it
-- rests on, and otherwise says why not. Decisions about budgets ask about nothing but their tenant's own books.
create function budget_settle(
    p_clock bigint, p_valid_ms bigint, p_written text[], p_written_versions bigint[], p_seen text[],
    p_seen_versions bigint[], p_owners text[], p_operations text[], p_idempotency_keys text[], p_heads json,
    p_budgets json, p_reservations json, p_answers json, p_outbox json, p_debits json, p_fundings json, p_policies json,
    p_windows json, p_audit json, p_registry json, p_revoked json, out verdict text, out now_ms bigint
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
            p_written[1], p_written, p_heads, p_budgets, p_reservations, p_answers, p_outbox, p_debits, p_fundings,
            p_policies, p_windows, p_audit, p_registry, p_revoked
        );
    end if;
    verdict := 'settled';
end $$;
