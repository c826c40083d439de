-- Events of the registry: rare, and written by a transaction that no actor orders, so they need no outbox. They are
-- appended in that very transaction: to the mirror, and to the tenant's stream where they concern the tenant itself.

-- Locks the streams in the order of their ids, as the relay does, numbers the events behind what is there, and tells all
-- nodes, this one among them, once it is committed. `p_events` is an array of events in their order.
create function event_append(p_events json, p_hint_max integer) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    streams text[];
    hint text;
begin
    select array_agg(distinct s order by s) into streams
    from (
        select e ->> 'tenant_id' as s from json_array_elements(p_events) e where not (e ->> 'is_for_operators')::boolean
        union all select '*'
    ) named;
    insert into event_stream (tenant_id)
        select s from unnest(streams) s order by s collate "C" on conflict (tenant_id) do nothing;
    perform 1 from event_stream s where s.tenant_id = any (streams)
        order by s.tenant_id collate "C" for no key update;
    with copy as (
        select
            c.stream, s.last_seq + row_number() over (partition by c.stream order by t.place) as seq, e.event_id,
            e.tenant_id, e.type, e.occurred_at, e.recorded_at, e.payload, e.request_id, e.trace_id
        from
            json_array_elements(p_events) with ordinality t (given, place),
            lateral json_populate_record(null::waiting_event, t.given) e,
            lateral (values (e.tenant_id), ('*')) c (stream),
            event_stream s
        where s.tenant_id = any (streams) and s.tenant_id = c.stream
            and (c.stream = '*' or not (t.given ->> 'is_for_operators')::boolean)
    ), written as (
        insert into event (
            tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload, request_id, trace_id
        )
        select stream, seq, event_id, tenant_id, type, occurred_at, recorded_at, payload, request_id, trace_id from copy
    )
    update event_stream s set last_seq = c.last_seq
    from (select stream, max(seq) as last_seq from copy group by stream) c
    where s.tenant_id = any (streams) and s.tenant_id = c.stream;
    hint := json_build_object('node', '', 'streams', streams, 'keys', '{}'::text[]);
    if octet_length(hint) > p_hint_max then
        hint := json_build_object('node', '');
    end if;
    perform pg_notify('earmark', hint);
end $$;

-- Whether it was told that the key's time is over.
alter table api_key add column expiry_told boolean not null default false;
create index api_key_to_expire on api_key (expires_at) where expires_at is not null and not expiry_told;
