-- Signed evidence of what was decided about budgets, where a deployment wants it. Nothing here is written otherwise.

create table budget_evidence (
    tenant_id      text not null,
    evidence_id    text not null,
    artifact       text not null,
    reservation_id text,
    envelope       text not null, -- the very bytes that are signed, for good
    issued_at      bigint not null,
    primary key (tenant_id, evidence_id),
    constraint budget_evidence_id check (evidence_id ~ '^[0-9a-f]{64}$'),
    constraint budget_evidence_artifact check (artifact in ('decide', 'reserve', 'commit', 'release', 'error'))
);
-- Whoever has the id may have the envelope, and says nothing of the tenant.
create index budget_evidence_by_id on budget_evidence (evidence_id);
create index budget_evidence_of_reservation on budget_evidence (tenant_id, reservation_id) where reservation_id is not null;

-- Which evidence belongs to a remembered answer: a repetition tells the same, and both are forgotten together.
create table budget_evidence_of (
    tenant_id       text not null,
    operation       text not null,
    idempotency_key text not null,
    evidence_id     text not null,
    primary key (tenant_id, operation, idempotency_key),
    foreign key (tenant_id, operation, idempotency_key)
        references budget_answer (tenant_id, operation, idempotency_key) on delete cascade,
    foreign key (tenant_id, evidence_id) references budget_evidence (tenant_id, evidence_id)
);

-- The public halves of the keys that have signed. One that has not been used for a while is retired, never removed.
create table evidence_key (
    kid        text primary key,
    public_key bytea not null,
    from_at    bigint not null,
    used_at    bigint not null,
    constraint evidence_key_length check (length(public_key) = 32)
);
