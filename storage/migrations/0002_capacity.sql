-- Capacity: everything of one reservation carries its key, first in every primary key, unique index and foreign key.

create table capacity_reservation (
    key               text primary key, -- account id / reservation id
    account_id        text not null,
    reservation_id    text not null,
    provider          text not null,
    flavor            text not null,
    region            text not null,
    total             integer not null,
    status            text not null,
    pool_id           text,
    external_in_use   integer not null,
    clock_at          bigint not null,
    total_seq         bigint not null,
    gone_at           bigint,
    missed_scans      integer not null,
    created_at        bigint not null,
    next_boundary_at  bigint,
    version           bigint not null,
    outbox_seq        bigint not null,
    constraint capacity_reservation_total check (total >= 0),
    constraint capacity_reservation_external check (external_in_use >= 0),
    constraint capacity_reservation_status check (status in ('ready', 'not_ready', 'gone')),
    constraint capacity_reservation_gone check ((status = 'gone') = (gone_at is not null))
) with (fillfactor = 50);
create index capacity_reservation_due on capacity_reservation (next_boundary_at) where next_boundary_at is not null;
create index capacity_reservation_of_account on capacity_reservation (account_id, key);
create index capacity_reservation_of_pool on capacity_reservation (pool_id, key) where pool_id is not null;
create index capacity_reservation_newest on capacity_reservation (created_at desc, key collate "C" desc);

create table capacity_grant (
    key              text not null references capacity_reservation,
    grant_id         text not null,
    tenant_id        text not null,
    project_id       text,
    slots            integer not null,
    starts_at        bigint not null,
    ends_at          bigint not null,
    created_at       bigint not null,
    created_by       text not null,
    pool_id          text not null,
    region           text not null,
    provider         text not null,
    cancelled_at     bigint,
    ended_reason     text,
    started_applied  boolean not null,
    ended_applied    boolean not null,
    commitments      jsonb, -- [[from, slots], …] once an amendment changed the slots in mid-term
    version          bigint not null,
    metered_through  bigint not null default 0, -- the meter's own column
    primary key (key, grant_id),
    constraint capacity_grant_slots check (slots between 1 and 100000),
    constraint capacity_grant_term check (starts_at >= 0 and ends_at >= starts_at),
    constraint capacity_grant_applied check (started_applied or not ended_applied)
) with (fillfactor = 80);
create index capacity_grant_open on capacity_grant (key, ends_at) where cancelled_at is null and not ended_applied;
create index capacity_grant_recent on capacity_grant (key, ends_at) where cancelled_at is null;
create index capacity_grant_unmetered on capacity_grant (key) where cancelled_at is null and metered_through < ends_at;
create index capacity_grant_of_tenant on capacity_grant (tenant_id, created_at desc, grant_id collate "C" desc);
create index capacity_grant_open_of_tenant on capacity_grant (tenant_id, created_at desc, grant_id collate "C" desc)
    where cancelled_at is null and not ended_applied;
create index capacity_grant_newest on capacity_grant (created_at desc, grant_id collate "C" desc);

create table capacity_instance (
    key            text not null references capacity_reservation,
    instance_id    text not null,
    tenant_id      text not null,
    project_id     text not null,
    name           text not null,
    created_at     bigint not null,
    run_state      text not null,
    billing        text not null,
    grant_id       text,
    attached       boolean not null,
    segment_count  integer not null,
    primary key (key, instance_id),
    foreign key (key, grant_id) references capacity_grant (key, grant_id),
    constraint capacity_instance_run_state check (run_state in ('running', 'stopped', 'deleted')),
    constraint capacity_instance_billing check (billing in ('normal', 'none')),
    constraint capacity_instance_unbilled check (billing <> 'none' or grant_id is null),
    constraint capacity_instance_inside check (grant_id is null or (attached and run_state <> 'deleted'))
) with (fillfactor = 80);
create index capacity_instance_present on capacity_instance (key) where run_state <> 'deleted';
create index capacity_instance_in_grant on capacity_instance (key, grant_id) where grant_id is not null;
create index capacity_instance_of_tenant on capacity_instance (tenant_id, created_at desc, instance_id collate "C" desc);
create index capacity_instance_newest on capacity_instance (created_at desc, instance_id collate "C" desc);

create table capacity_segment (
    key              text not null,
    instance_id      text not null,
    number           integer not null,
    from_at          bigint not null,
    to_at            bigint,
    mode             text not null,
    grant_id         text,
    metered_through  bigint not null default 0, -- the meter's own column
    primary key (key, instance_id, number),
    foreign key (key, instance_id) references capacity_instance (key, instance_id),
    constraint capacity_segment_mode check (mode in ('grant', 'reserved', 'ondemand', 'none')),
    constraint capacity_segment_grant check ((mode = 'grant') = (grant_id is not null)),
    constraint capacity_segment_span check (to_at is null or to_at >= from_at)
) with (fillfactor = 80);
create index capacity_segment_open on capacity_segment (key, instance_id) where to_at is null;
create index capacity_segment_of_grant on capacity_segment (key, grant_id) where grant_id is not null;
create index capacity_segment_unmetered on capacity_segment (key)
    where mode <> 'none' and (to_at is null or metered_through <> to_at);

-- Events of a reservation, numbered under its lock, until the tenant's stream has them.
create table capacity_outbox (
    key          text not null,
    seq          bigint not null,
    event_id     text not null,
    tenant_id    text not null,
    type         text not null,
    occurred_at  bigint not null,
    recorded_at  bigint not null,
    payload      jsonb not null,
    request_id   text,
    trace_id     text,
    primary key (key, seq)
);
create index capacity_outbox_pending on capacity_outbox (recorded_at);

-- Where a grant or an instance lives: the way from a bare id to its key.
create table capacity_locator (
    id   text primary key,
    key  text not null
);

create table usage_record (
    tenant_id    text not null,
    source_key   text not null,
    project_id   text,
    meter        text not null,
    hour_start   bigint not null,
    quantity_ms  bigint not null,
    grant_id     text,
    instance_id  text,
    tags         jsonb not null,
    written_at   bigint not null,
    primary key (tenant_id, source_key),
    constraint usage_record_hour check (hour_start % 3600000 = 0)
);
create index usage_record_by_hour on usage_record (tenant_id, hour_start desc, source_key collate "C" desc);
create index usage_record_of_grant on usage_record (tenant_id, grant_id, meter, hour_start) where grant_id is not null;

-- What the functions of a turn have in common: their plans are made once for a connection, since making them costs more
-- than running them; and made for indexes, whatever was known about the size of a young table at that moment.

-- The beginning of a turn in one round trip. Locks the heads one by one in the given (sorted) order and reads each as it
-- holds then; the clock is read after the last. What follows is read after the locks, so that whoever waited for one sees
-- what its holder left: remembered answers, and what decisions ask about other things: registries are small and change
-- rarely. The offers of the pools that the heads are bound to come by themselves.
create function capacity_lock(
    p_keys text[], p_owners text[], p_operations text[], p_idempotency_keys text[], p_tenants text[], p_projects text[],
    p_accounts text[], p_pools text[], out now_ms bigint, out heads capacity_reservation[], out answers answer[],
    out platform text, out tenants text[], out projects json, out accounts json, out pools text[], out offers json
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    k text;
    head capacity_reservation;
    asked_pools text[] := p_pools;
begin
    heads := '{}';
    foreach k in array p_keys loop
        select r.* into head from capacity_reservation r where r.key = k for no key update;
        if found then
            heads := heads || head;
            asked_pools := asked_pools || head.pool_id;
        end if;
    end loop;
    now_ms := floor(extract(epoch from clock_timestamp()) * 1000)::bigint;
    if cardinality(p_owners) > 0 then
        select array_agg(a)
        from unnest(p_owners, p_operations, p_idempotency_keys) k (owner, operation, idempotency_key),
            lateral (
                select * from answer a
                where a.owner = k.owner and a.operation = k.operation and a.idempotency_key = k.idempotency_key offset 0
            ) a
        into answers;
    end if;
    select
        (select t.tenant_id from tenant t where t.is_root),
        (select array_agg(t.tenant_id) from tenant t where t.tenant_id = any (p_tenants) and t.deleted_at is null),
        (select json_object_agg(p.project_id, p.tenant_id) from project p
            where p.project_id = any (p_projects) and p.deleted_at is null),
        (select json_object_agg(a.account_id, a.provider) from provider_account a
            where a.account_id = any (p_accounts) and a.deleted_at is null),
        (select array_agg(p.pool_id) from pool p where p.pool_id = any (asked_pools)),
        (select json_agg(json_build_array(o.pool_id, o.tenant_id)) from pool_offer o
            where o.pool_id = any (asked_pools) and (o.tenant_id = '*' or o.tenant_id = any (p_tenants)))
    into platform, tenants, projects, accounts, pools, offers;
end $$;

-- Writes one turn: everything or nothing. Heads carry the version they become; a head that moved on aborts it all.
create function capacity_flush(
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
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version
        )
        select key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version
        from json_populate_recordset(null::capacity_grant, p_new_grants);
    end if;
    if p_grants is not null then
        insert into capacity_grant as g (
            key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version
        )
        select key, grant_id, tenant_id, project_id, slots, starts_at, ends_at, created_at, created_by, pool_id, region,
            provider, cancelled_at, ended_reason, started_applied, ended_applied, commitments, version
        from json_populate_recordset(null::capacity_grant, p_grants)
        on conflict (key, grant_id) do update
        set slots = excluded.slots, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
            cancelled_at = excluded.cancelled_at, ended_reason = excluded.ended_reason,
            started_applied = excluded.started_applied, ended_applied = excluded.ended_applied,
            commitments = excluded.commitments, version = excluded.version;
    end if;
    if p_instances is not null then
        insert into capacity_instance select * from json_populate_recordset(null::capacity_instance, p_instances)
        on conflict (key, instance_id) do update
        set run_state = excluded.run_state, billing = excluded.billing, grant_id = excluded.grant_id,
            attached = excluded.attached, segment_count = excluded.segment_count;
    end if;
    if p_segments is not null then
        insert into capacity_segment as s (key, instance_id, number, from_at, to_at, mode, grant_id)
        select key, instance_id, number, from_at, to_at, mode, grant_id
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
