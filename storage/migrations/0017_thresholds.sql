-- What is counted so that somebody can be told when it becomes unusual (8.2, 8.3).

-- Keys that requests were sent with, a row a minute: how many were valid, and how many not. `__system__`: keys that are
-- nobody's. On another node's retry a count may be added twice; it is a rate, not a book.
create table key_attempt (
    tenant_id  text not null,
    minute_at  bigint not null,
    succeeded  bigint not null,
    failed     bigint not null,
    primary key (tenant_id, minute_at),
    constraint key_attempt_counts check (least(succeeded, failed) >= 0)
);
create index key_attempt_by_age on key_attempt (minute_at);

-- How fast budgets are used up, in windows of one length: what was charged by the end of the last one in which anything
-- was, and in it and the ones before it. A window in which nothing was charged writes nothing.
create table budget_burn (
    tenant_id      text not null,
    window_ms      bigint not null,
    budget_id      text collate "C" not null,
    spent          bigint not null,
    debt           bigint not null,
    window_ends_at bigint not null,
    burned         numeric[] not null, -- by window, the last one last
    ratio          bigint, -- of the last one to those before, in millionths; null: there was nothing to compare with
    primary key (tenant_id, window_ms, budget_id),
    foreign key (tenant_id, budget_id) references budget (tenant_id, budget_id)
);

-- The few subscriptions that have thresholds of their own are looked at every second.
create index webhook_subscription_with_thresholds on webhook_subscription (subscription_id)
    where thresholds is not null and deleted_at is null;
