-- The relay again, with the order of T89 across reservations: at one instant a tenant hears of ends before starts.

create index capacity_outbox_ended on capacity_outbox (tenant_id, occurred_at)
    where type = 'reservation-grant.ended';

drop function event_relay(text, text[], text[], text[], text, integer);

-- Moves what waits in an outbox under these keys, each event once into its tenant's stream and once into the mirror (*),
-- and tells the other nodes so, and which things look different (`p_changed`). Returns how many events there were, the
-- streams that have grown, what was appended to those of them that `p_listened` names, and what has to wait.
--
-- A start waits for the ends of its tenant at the same instant on other reservations: its key is `held`, unless it is in
-- `p_impatient`, while such an end is not applied, or is and waits in an outbox that is not moved here; those outboxes are
-- `needed`. Ends are looked for after the events have been seen, so that none is missed in between.
create function event_relay(
    p_outbox text, p_keys text[], p_impatient text[], p_changed text[], p_listened text[], p_node text,
    p_hint_max integer, out moved bigint, out streams text[], out held text[], out needed text[], out appended json
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    keys text[];
    seqs bigint[];
    starts waiting_event[];
    waiting text[];
    blocking text[];
    taken waiting_event[];
    hint text;
begin
    held := '{}';
    needed := '{}';
    if p_outbox = 'capacity_outbox' then
        with waits as (
            select o.* from capacity_outbox o where o.key = any (p_keys)
        ), seen as (
            select w.key, max(w.seq) as seq, array_agg(distinct w.tenant_id) as tenants from waits w group by w.key
        )
        select array_agg(s.key), array_agg(s.seq), (select array_agg(distinct t) from seen e, unnest(e.tenants) t), (
            select array_agg(row(w.*)::waiting_event) from waits w
            where w.type = 'reservation-grant.active' and w.key <> all (p_impatient)
        )
        from seen s into keys, seqs, streams, starts;
    else
        with seen as (
            select o.key, max(o.seq) as seq, array_agg(distinct o.tenant_id) as tenants
            from budget_outbox o where o.key = any (p_keys) group by o.key
        )
        select array_agg(s.key), array_agg(s.seq), (select array_agg(distinct t) from seen e, unnest(e.tenants) t)
        from seen s into keys, seqs, streams;
    end if;
    if starts is not null then
        with ending as materialized (
            select g.key, g.tenant_id, g.ends_at
            from capacity_reservation r join capacity_grant g on g.key = r.key
            where r.next_boundary_at <= (select max(s.occurred_at) from unnest(starts) s)
                and g.ends_at = any (array(select distinct s.occurred_at from unnest(starts) s))
                and g.cancelled_at is null and not g.ended_applied
        )
        select coalesce(array_agg(distinct s.key), '{}')
        from unnest(starts) s join ending e
            on e.tenant_id = s.tenant_id and e.ends_at = s.occurred_at and e.key <> s.key
        into held;
        loop
            select array_agg(distinct s.key), array_agg(distinct o.key)
            from unnest(starts) s join capacity_outbox o
                on o.type = 'reservation-grant.ended' and o.tenant_id = s.tenant_id and o.occurred_at = s.occurred_at
            where s.key <> all (held) and o.key <> s.key and not exists (
                select 1 from unnest(keys, seqs) k (key, seq)
                where k.key <> all (held) and k.key = o.key and k.seq >= o.seq
            )
            into waiting, blocking;
            exit when waiting is null;
            held := held || waiting;
            needed := needed || blocking;
        end loop;
        select array_agg(k.key), array_agg(k.seq) from unnest(keys, seqs) k (key, seq) where k.key <> all (held)
        into keys, seqs;
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
            ), placed as (
                -- Each key in its own order, and all of them by instant, ends before starts: an event is no earlier
                -- than those before it under its key.
                select g.event, max(array[
                    (g.event).occurred_at, case (g.event).type when 'reservation-grant.ended' then 0 else 1 end
                ]) over (partition by (g.event).key order by (g.event).seq) as place
                from gone g
            )
            select array_agg(p.event order by p.place, (p.event).key collate "C", (p.event).seq)
            from placed p into taken;
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
    if moved = 0 and cardinality(p_changed) = 0 then
        return;
    end if;
    hint := json_build_object('node', p_node, 'streams', streams, 'keys', p_changed);
    if octet_length(hint) > p_hint_max then
        hint := json_build_object('node', p_node);
    end if;
    perform pg_notify('earmark', hint);
end $$;
