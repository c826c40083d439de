-- The version that its reservation got when a row was last written. A node that was overtaken reads only what is newer than
-- its books. There is no index: it is a look at the rows of one key, and writing is what must be cheap.
alter table capacity_grant add column turn bigint default 0;
alter table capacity_instance add column turn bigint default 0;

-- What is there already is older than any books. A row that is put in without it counts as new to everybody.
alter table capacity_grant alter column turn drop default;
alter table capacity_instance alter column turn drop default;

-- Writes one turn, as before; grants and instances carry their turn.
create or replace function capacity_flush(
    p_route text, p_keys text[], p_heads json, p_new_grants json, p_grants json, p_instances json, p_segments json,
    p_outbox json, p_locators json, p_answers json
) returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    written integer;
    inserted integer := 0;
begin
    update capacity_reservation r
    set flavor = d.flavor, region = d.region, total = d.total, status = d.status, pool_id = d.pool_id,
        external_in_use = d.external_in_use, clock_at = d.clock_at, total_seq = d.total_seq, gone_at = d.gone_at,
        missed_scans = d.missed_scans, next_boundary_at = d.next_boundary_at, version = d.version,
        outbox_seq = d.outbox_seq
    from json_populate_recordset(null::capacity_reservation, p_heads) d
    where r.key = any (p_keys) and r.key = d.key and r.version = d.version - 1;
    get diagnostics written = row_count;
    if written < cardinality(p_keys) then
        insert into capacity_reservation
            select d.* from json_populate_recordset(null::capacity_reservation, p_heads) d where d.version = 1;
        get diagnostics inserted = row_count;
    end if;
    if written + inserted <> cardinality(p_keys) then
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
