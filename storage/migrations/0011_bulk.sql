-- Bulk actions of operators, rare and not of one tenant: what one was about to change, and what came of it.
create table bulk_run (
    operation       text not null,
    idempotency_key text not null,
    run_id          text not null, -- the rows' own idempotency keys are made of it
    fingerprint     bytea not null,
    matched         json not null,
    started_at      bigint not null,
    answer          json, -- null: not all rows have been tried, as far as is known
    primary key (operation, idempotency_key)
);
create index bulk_run_by_age on bulk_run (started_at);
