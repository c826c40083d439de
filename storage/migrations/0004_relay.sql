-- From the outboxes to the streams: one function, so that moving events takes one round trip whatever their number.

create type waiting_event as (
    key          text,
    seq          bigint,
    event_id     text,
    tenant_id    text,
    type         text,
    occurred_at  bigint,
    recorded_at  bigint,
    payload      jsonb,
    request_id   text,
    trace_id     text
);

-- Moves what waits in an outbox under these keys, each event once into its tenant's stream and once into the mirror (*),
-- and tells the other nodes so, and which things look different (`p_changed`). Returns how many events there were, the
-- streams that have grown, and what was appended to those of them that `p_listened` names.
create function event_relay(
    p_outbox text, p_keys text[], p_changed text[], p_listened text[], p_node text, p_hint_max integer,
    out moved bigint, out streams text[], out appended json
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    keys text[];
    seqs bigint[];
    taken waiting_event[];
    hint text;
begin
    if p_outbox = 'capacity_outbox' then
        with seen as (
            select o.key, max(o.seq) as seq, array_agg(distinct o.tenant_id) as tenants
            from capacity_outbox o where o.key = any (p_keys) group by o.key
        )
        select array_agg(s.key), array_agg(s.seq), (select array_agg(distinct t) from seen e, unnest(e.tenants) t)
        from seen s into keys, seqs, streams;
    else
        with seen as (
            select o.key, max(o.seq) as seq, array_agg(distinct o.tenant_id) as tenants
            from budget_outbox o where o.key = any (p_keys) group by o.key
        )
        select array_agg(s.key), array_agg(s.seq), (select array_agg(distinct t) from seen e, unnest(e.tenants) t)
        from seen s into keys, seqs, streams;
    end if;
    if keys is not null then
        -- In the order of their ids, so that two relays wait for each other; the second finds nothing left.
        streams := array(select s from unnest(streams || '*'::text) s order by s collate "C");
        if (select count(*) from event_stream s where s.tenant_id = any (streams)) < cardinality(streams) then
            insert into event_stream (tenant_id)
                select s from unnest(streams) s order by s collate "C" on conflict (tenant_id) do nothing;
        end if;
        perform 1 from event_stream s where s.tenant_id = any (streams)
            order by s.tenant_id collate "C" for no key update;
        if p_outbox = 'capacity_outbox' then
            with gone as (
                delete from capacity_outbox o using unnest(keys, seqs) k (key, seq)
                where o.key = any (keys) and o.key = k.key and o.seq <= k.seq
                returning row(o.*)::waiting_event as event
            )
            select array_agg(g.event order by (g.event).recorded_at, (g.event).key collate "C", (g.event).seq)
            from gone g into taken;
        else
            with gone as (
                delete from budget_outbox o using unnest(keys, seqs) k (key, seq)
                where o.key = any (keys) and o.key = k.key and o.seq <= k.seq
                returning row(o.*)::waiting_event as event
            )
            select array_agg(g.event order by (g.event).recorded_at, (g.event).key collate "C", (g.event).seq)
            from gone g into taken;
        end if;
    end if;
    with copy as (
        select
            c.stream, s.last_seq + row_number() over (partition by c.stream order by t.place) as seq, t.event_id,
            t.tenant_id, t.type, t.occurred_at, t.recorded_at, t.payload, t.request_id, t.trace_id
        from
            unnest(taken) with ordinality t (
                key, waiting_seq, event_id, tenant_id, type, occurred_at, recorded_at, payload, request_id, trace_id, place
            ),
            lateral (values (t.tenant_id), ('*')) c (stream),
            event_stream s
        where s.tenant_id = any (streams) and s.tenant_id = c.stream
    ), written as (
        insert into event (
            tenant_id, seq, event_id, subject, type, occurred_at, recorded_at, payload, request_id, trace_id
        )
        select stream, seq, event_id, tenant_id, type, occurred_at, recorded_at, payload, request_id, trace_id from copy
    ), numbered as (
        update event_stream s set last_seq = c.last_seq
        from (select stream, max(seq) as last_seq from copy group by stream) c
        where s.tenant_id = any (streams) and s.tenant_id = c.stream
    )
    select
        count(*) filter (where c.stream = '*'), coalesce(array_agg(distinct c.stream), '{}'),
        json_agg(c order by c.stream, c.seq) filter (where c.stream = any (p_listened))
    from copy c into moved, streams, appended;
    hint := json_build_object('node', p_node, 'streams', streams, 'keys', p_changed);
    if octet_length(hint) > p_hint_max then
        hint := json_build_object('node', p_node);
    end if;
    perform pg_notify('earmark', hint);
end $$;
