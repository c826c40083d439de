-- Webhooks: subscriptions, their deliveries, and how far the mirror stream has been handed out to them.

-- What an owner has written down. Secrets are sealed: `sealed_with` names the key.
create table webhook_subscription (
    subscription_id        text primary key,
    tenant_id              text not null, -- the owner: a tenant, or __system__
    url                    text not null,
    event_types            text[] not null,
    event_categories       text[] not null,
    name                   text,
    description            text,
    scope_filter           text,
    thresholds             json,
    retry_policy           json not null,
    disable_after_failures integer not null,
    metadata               json,
    header_names           text[] not null,
    sealed_with            text not null,
    sealed_secret          bytea, -- null once the subscription is deleted
    sealed_headers         bytea,
    created_at             bigint not null,
    updated_at             bigint,
    deleted_at             bigint,
    -- The first invariant, and the second as far as SQL can tell categories apart.
    constraint webhook_subscription_selects check (cardinality(event_types) + cardinality(event_categories) > 0),
    constraint webhook_subscription_is_the_tenants check (
        tenant_id = '__system__'
        or not event_categories && array['api_key', 'policy', 'webhook', 'system']
        and array_to_string(event_types, ' ') !~ '(^| )(api_key|policy|webhook|system)[.]'
    ),
    constraint webhook_subscription_url check (length(url) <= 2048),
    constraint webhook_subscription_failures check (disable_after_failures >= 1)
);
create index webhook_subscription_of_tenant on webhook_subscription (tenant_id, created_at desc) where deleted_at is null;
create index webhook_subscription_newest on webhook_subscription (created_at desc, subscription_id collate "C")
    where deleted_at is null;

-- What every decision about a subscription locks: its status, how its deliveries go, and which node makes them. Written
-- with every attempt, so it is narrow and its hot columns have no index.
create table webhook_head (
    subscription_id      text primary key references webhook_subscription,
    host                 text not null, -- the receiver's: what is dead is a host
    status               text not null,
    version              bigint not null default 1,
    active_from_at       bigint not null, -- events recorded before, or up to this place of the mirror, are not its
    active_from_place    bigint not null,
    consecutive_failures integer not null default 0,
    is_failing           boolean not null default false,
    last_triggered_at    bigint,
    last_success_at      bigint,
    last_failure_at      bigint,
    due_at               bigint, -- when there is something to deliver; null: nothing, or not ACTIVE
    lease                text,   -- the node's, while it delivers
    leased_until         bigint not null default 0,
    constraint webhook_head_status check (status in ('ACTIVE', 'PAUSED', 'DISABLED')),
    constraint webhook_head_due check (due_at is null or status = 'ACTIVE'),
    constraint webhook_head_failures check (consecutive_failures >= 0)
) with (fillfactor = 50);
create index webhook_head_due on webhook_head (due_at) where due_at is not null;

create table webhook_delivery (
    subscription_id  text not null references webhook_subscription,
    delivery_id      text not null,
    place            bigint, -- the event's number in the mirror; null for a test, whose event is in no stream
    event_id         text not null,
    event_type       text not null,
    status           text not null,
    attempts         integer not null,
    created_at       bigint not null,
    attempted_at     bigint,
    completed_at     bigint,
    next_attempt_at  bigint,
    response_status  integer,
    response_time_ms bigint,
    error            text,
    replay_id        text,
    trace_id         text not null,
    trace_flags      text not null,
    trace_was_given  boolean not null,
    primary key (subscription_id, delivery_id),
    constraint webhook_delivery_status check (status in ('PENDING', 'RETRYING', 'SUCCESS', 'FAILED')),
    constraint webhook_delivery_attempts check (attempts >= 0 and (status <> 'PENDING' or attempts = 0)),
    constraint webhook_delivery_open check ((status in ('SUCCESS', 'FAILED')) = (completed_at is not null)),
    constraint webhook_delivery_retry check ((status = 'RETRYING') = (next_attempt_at is not null))
) with (fillfactor = 80);
-- An event is queued once, whoever hands it out; a replay queues it again.
create unique index webhook_delivery_once on webhook_delivery (subscription_id, event_id) where replay_id is null;
create index webhook_delivery_pending on webhook_delivery (subscription_id, place, delivery_id) where status = 'PENDING';
create index webhook_delivery_retrying on webhook_delivery (subscription_id, next_attempt_at) where status = 'RETRYING';
create index webhook_delivery_newest on webhook_delivery (subscription_id, created_at desc, delivery_id collate "C");
create index webhook_delivery_of_replay on webhook_delivery (subscription_id, replay_id)
    where replay_id is not null and status in ('PENDING', 'RETRYING');
create index webhook_delivery_open on webhook_delivery (created_at) where status in ('PENDING', 'RETRYING');
create index webhook_delivery_done on webhook_delivery (created_at) where status in ('SUCCESS', 'FAILED');

-- How far the mirror stream has been handed out. One row; its lock is the turn of whoever hands out.
create table webhook_cursor (
    stream  text primary key,
    place   bigint not null
);
insert into webhook_cursor (stream, place)
select '*', coalesce((select last_seq from event_stream where tenant_id = '*'), 0);

-- What an operator has put in place of the defaults. At most one row.
create table webhook_security (
    name                 text primary key check (name = 'current'),
    blocked_cidr_ranges  text[] not null,
    allowed_url_patterns text[] not null,
    allow_http           boolean not null,
    updated_at           bigint not null
);

-- Locks heads one by one in the given (sorted) order and returns each as it holds then.
create function webhook_lock(p_ids text[]) returns setof webhook_head language plpgsql as $$
declare
    id text;
begin
    foreach id in array p_ids loop
        return query select h.* from webhook_head h where h.subscription_id = id for no key update;
    end loop;
end $$;
