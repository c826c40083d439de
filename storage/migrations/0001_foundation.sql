-- Tenants and who may act for them, the registry of providers and pools, remembered answers, and the event streams.

create table tenant (
    tenant_id   text primary key,
    name        text not null,
    is_root     boolean not null default false,
    created_at  bigint not null,
    deleted_at  bigint,
    closed_at   bigint, -- every capacity reservation has let go of the deleted tenant
    constraint tenant_id_shape check (tenant_id ~ '^[A-Za-z0-9._:-]{1,128}$'),
    constraint tenant_root_stays check (not (is_root and deleted_at is not null))
);
create unique index tenant_one_root on tenant (is_root) where is_root;
create index tenant_to_close on tenant (tenant_id) where deleted_at is not null and closed_at is null;
create index tenant_newest on tenant (created_at desc, tenant_id collate "C" desc);

create table project (
    project_id  text primary key,
    tenant_id   text not null references tenant,
    name        text not null,
    created_at  bigint not null,
    deleted_at  bigint
);
create index project_of_tenant on project (tenant_id, created_at desc, project_id collate "C" desc);

create table api_key (
    key_id       text primary key,
    tenant_id    text not null references tenant,
    name         text not null,
    prefix       text not null unique,
    secret_hash  bytea not null,
    permissions  text[] not null,
    created_at   bigint not null,
    expires_at   bigint,
    revoked_at   bigint,
    last_used_at bigint
);
create index api_key_of_tenant on api_key (tenant_id, created_at desc, key_id collate "C" desc);

create table provider_account (
    account_id     text primary key,
    tenant_id      text not null references tenant,
    name           text not null,
    provider       text not null, -- what grants and usage are tagged with, such as gcp
    kind           text not null, -- how it is scanned: file, push, gce
    settings       jsonb not null default '{}',
    created_at     bigint not null,
    deleted_at     bigint,
    scanned_at     bigint,
    scan_complete  boolean,
    scan_problems  jsonb
);
create index provider_account_newest on provider_account (created_at desc, account_id collate "C" desc);

create table pool (
    pool_id     text primary key,
    name        text not null,
    created_at  bigint not null
);
create index pool_newest on pool (created_at desc, pool_id collate "C" desc);

create table pool_offer (
    pool_id     text not null references pool,
    tenant_id   text not null, -- a tenant, or * for everybody
    created_at  bigint not null,
    primary key (pool_id, tenant_id)
);
create index pool_offer_to_tenant on pool_offer (tenant_id);

-- One row an accepted mutation: a retry under the same key finds what the first one did.
create table answer (
    owner           text not null, -- the tenant that the caller acts in
    operation       text not null,
    idempotency_key text not null,
    fingerprint     bytea not null,
    subject_id      text not null,
    answered_at     bigint not null,
    primary key (owner, operation, idempotency_key)
);
create index answer_by_age on answer (answered_at);

-- One stream a tenant (and one that mirrors all, under the id *): numbers without gaps, taken under the stream's row lock.
create table event_stream (
    tenant_id  text primary key,
    last_seq   bigint not null default 0,
    first_seq  bigint not null default 1 -- the oldest number still kept
) with (fillfactor = 50);

create table event (
    tenant_id    text not null,
    seq          bigint not null,
    event_id     text not null,
    subject      text not null, -- the tenant it is about: differs from tenant_id in the mirror
    type         text not null,
    occurred_at  bigint not null,
    recorded_at  bigint not null,
    payload      jsonb not null,
    request_id   text,
    trace_id     text,
    primary key (tenant_id, seq),
    unique (tenant_id, event_id)
);
create index event_of_grant on event (tenant_id, (payload ->> 'grantId'), seq) where payload ? 'grantId';
create index event_by_age on event (tenant_id, recorded_at);

create table job_run (
    name         text primary key,
    last_run_at  bigint not null
);
