-- Budgets: everything of one tenant carries its id, first in every primary key, unique index and foreign key.
-- What a client sends as a free document is kept as `json`, not `jsonb`: it comes back exactly as it was sent.

alter table api_key
    add column scope_filter text[] not null default '{}', -- level:id or level:*; empty: all of the tenant's budgets
    add column description text,
    add column metadata jsonb;

-- The head: every decision about a tenant's budgets locks it. Made when the tenant is first asked about (budget_lock).
create table budget_tenant (
    tenant_id              text primary key references tenant,
    status                 text, -- null: cannot be understood, and nothing is decided
    metadata               json,
    default_overage_policy text,
    default_ttl_ms         bigint,
    max_ttl_ms             bigint,
    max_extensions         bigint,
    expiry_policy          text not null,
    denies_on_any_debt     boolean not null,
    extension_lead_max_ms  bigint,
    clock_at               bigint not null,
    suspended_at           bigint,
    closed_at              bigint,
    updated_at             bigint,
    next_expiry_at         bigint, -- no active reservation is over before it
    version                bigint not null,
    outbox_seq             bigint not null,
    constraint budget_tenant_status check (status in ('ACTIVE', 'SUSPENDED', 'CLOSED')),
    constraint budget_tenant_closed check (status is null or (status = 'CLOSED') = (closed_at is not null)),
    constraint budget_tenant_overage
        check (default_overage_policy in ('REJECT', 'ALLOW_IF_AVAILABLE', 'ALLOW_WITH_OVERDRAFT')),
    constraint budget_tenant_expiry check (expiry_policy in ('AUTO_RELEASE', 'MANUAL_CLEANUP', 'GRACE_ONLY'))
) with (fillfactor = 50);
create index budget_tenant_due on budget_tenant (next_expiry_at) where next_expiry_at is not null;

create table budget (
    tenant_id             text not null references budget_tenant,
    scope_path            text collate "C" not null,
    unit                  text collate "C" not null,
    budget_id             text collate "C" not null,
    allocated             bigint not null,
    reserved              bigint not null,
    spent                 bigint not null,
    debt                  bigint not null,
    remaining             bigint generated always as (allocated - spent - reserved - debt) stored, -- I1
    overdraft_limit       bigint not null,
    capped                boolean not null, -- a charge had to be cut to what remained
    is_over_limit         boolean generated always as (capped or debt > overdraft_limit) stored,
    status                text not null,
    commit_overage_policy text,
    caps                  json,
    rollover_policy       text not null,
    period_start_at       bigint,
    period_end_at         bigint,
    metadata              json,
    created_at            bigint not null,
    updated_at            bigint,
    closed_at             bigint,
    primary key (tenant_id, scope_path, unit),
    unique (tenant_id, budget_id),
    constraint budget_amounts check (least(allocated, reserved, spent, debt, overdraft_limit) >= 0), -- I3
    constraint budget_unit check (unit in ('USD_MICROCENTS', 'TOKENS', 'CREDITS', 'RISK_POINTS')),
    constraint budget_status check (status in ('ACTIVE', 'FROZEN', 'CLOSED')),
    constraint budget_closed check ((status = 'CLOSED') = (closed_at is not null)),
    constraint budget_rollover check (rollover_policy in ('NONE', 'CARRY_FORWARD', 'CAP_AT_ALLOCATED')),
    constraint budget_overage
        check (commit_overage_policy in ('REJECT', 'ALLOW_IF_AVAILABLE', 'ALLOW_WITH_OVERDRAFT'))
) with (fillfactor = 50);

create table budget_reservation (
    tenant_id          text not null,
    reservation_id     text collate "C" not null,
    idempotency_key    text not null,
    subject            json not null,
    action             json not null,
    unit               text not null,
    estimate           bigint not null,
    scope_path         text collate "C" not null, -- the scopes it falls under are its prefixes
    budgeted_scopes    text[] not null, -- those that had a budget when it was made: they settle, whatever comes later
    overage_policy     text not null,
    created_at         bigint not null,
    expires_at         bigint not null,
    ttl_ms             bigint not null,
    grace_ms           bigint not null,
    settles_until      bigint generated always as (expires_at + grace_ms) stored,
    max_extensions     bigint not null,
    extensions_used    bigint not null,
    status             text not null,
    metadata           json,
    charged            bigint,
    debts              bigint[] not null, -- by budgeted scope; empty when nothing became debt
    finalized_at       bigint,
    committed_metadata json,
    metrics            json,
    release_reason     text,
    primary key (tenant_id, reservation_id),
    constraint budget_reservation_estimate check (estimate >= 0),
    constraint budget_reservation_held check (cardinality(budgeted_scopes) > 0),
    constraint budget_reservation_status check (status in ('ACTIVE', 'COMMITTED', 'RELEASED', 'EXPIRED')),
    constraint budget_reservation_finalized
        check ((finalized_at is not null) = (status in ('COMMITTED', 'RELEASED'))), -- I4
    constraint budget_reservation_charged check ((charged is not null) = (status = 'COMMITTED')),
    constraint budget_reservation_charge check (charged >= 0),
    constraint budget_reservation_debts check (cardinality(debts) in (0, cardinality(budgeted_scopes))),
    constraint budget_reservation_extensions check (extensions_used between 0 and max_extensions)
) with (fillfactor = 80);
create index budget_reservation_due on budget_reservation (tenant_id, settles_until) where status = 'ACTIVE';
create index budget_reservation_newest on budget_reservation (tenant_id, created_at desc, reservation_id);
-- Whose a reservation is, when nobody says so: to tell another tenant's from one that there is not.
create index budget_reservation_owner on budget_reservation (reservation_id);

create table budget_debit (
    tenant_id       text not null,
    debit_id        text collate "C" not null,
    idempotency_key text not null,
    subject         json not null,
    action          json not null,
    unit            text not null,
    actual          bigint not null,
    charged         bigint not null,
    scope_path      text collate "C" not null,
    budgeted_scopes text[] not null,
    debts           bigint[] not null,
    overage_policy  text not null,
    created_at      bigint not null,
    metrics         json,
    client_time_ms  bigint,
    metadata        json,
    primary key (tenant_id, debit_id),
    constraint budget_debit_charge check (charged between 0 and actual),
    constraint budget_debit_held check (cardinality(budgeted_scopes) > 0),
    constraint budget_debit_debts check (cardinality(debts) in (0, cardinality(budgeted_scopes)))
);

create table budget_funding (
    tenant_id        text not null,
    funding_id       text collate "C" not null,
    budget_id        text collate "C" not null,
    operation        text not null,
    amount           bigint not null,
    spent_given      bigint,
    before           json not null, -- the balance as it was
    after            json not null,
    created_at       bigint not null,
    idempotency_key  text not null,
    reason           text,
    metadata         json,
    primary key (tenant_id, funding_id),
    foreign key (tenant_id, budget_id) references budget (tenant_id, budget_id),
    constraint budget_funding_operation check (operation in ('CREDIT', 'DEBIT', 'RESET', 'RESET_SPENT', 'REPAY_DEBT')),
    constraint budget_funding_amount check (amount >= 0)
);
create index budget_funding_of_budget on budget_funding (tenant_id, budget_id, funding_id);

create table budget_policy (
    tenant_id             text not null references budget_tenant,
    policy_id             text collate "C" not null,
    name                  text not null,
    scope_pattern         text not null,
    description           text,
    priority              bigint not null,
    caps                  json,
    commit_overage_policy text,
    ttl_override          json,
    rate_limits           json,
    status                text not null,
    effective_from_at     bigint,
    effective_until_at    bigint,
    created_at            bigint not null,
    updated_at            bigint,
    primary key (tenant_id, policy_id),
    unique (tenant_id, name),
    constraint budget_policy_status check (status in ('ACTIVE', 'DISABLED')),
    constraint budget_policy_priority check (priority >= 0),
    constraint budget_policy_term check (effective_from_at < effective_until_at)
);

-- How many calls a policy has let through in the minute that begins at minute_at.
create table budget_rate_window (
    tenant_id  text not null,
    policy_id  text collate "C" not null,
    kind       text not null,
    minute_at  bigint not null,
    count      bigint not null,
    primary key (tenant_id, policy_id, kind),
    foreign key (tenant_id, policy_id) references budget_policy (tenant_id, policy_id)
) with (fillfactor = 50);

-- One row an accepted request: a retry under the same key gets the same answer.
create table budget_answer (
    tenant_id       text not null,
    operation       text not null,
    idempotency_key text not null,
    fingerprint     bytea not null,
    answer          json not null,
    answered_at     bigint not null,
    forget_at       bigint, -- null: never
    primary key (tenant_id, operation, idempotency_key), -- I5
    constraint budget_answer_fingerprint check (length(fingerprint) = 32)
);
create index budget_answer_by_age on budget_answer (forget_at) where forget_at is not null;

-- What an operator may have to account for.
create table budget_audit (
    tenant_id      text not null,
    entry_id       text collate "C" not null,
    recorded_at    bigint not null,
    operation      text not null,
    resource_type  text not null,
    resource_id    text not null,
    actor_type     text not null,
    key_id         text,
    source_ip      text,
    request_id     text,
    trace_id       text,
    scope          text,
    unit           text,
    amount         bigint,
    reason         text,
    correlation_id text,
    metadata       json,
    primary key (tenant_id, entry_id)
);
create index budget_audit_newest on budget_audit (recorded_at desc, entry_id desc);

-- Events of a tenant, numbered under its head's lock, until its stream has them. `key` is the tenant's id.
create table budget_outbox (
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
create index budget_outbox_pending on budget_outbox (recorded_at);

-- Locks the heads one by one in the given (sorted) order, making those that tenants lack, then reads them, the clock and
-- what is remembered under the given keys: what it returns is what holds.
create function budget_lock(p_tenants text[], p_owners text[], p_operations text[], p_keys text[])
returns json language plpgsql as $$
declare
    k text;
begin
    foreach k in array p_tenants loop
        perform 1 from budget_tenant b where b.tenant_id = k for no key update;
        if not found then
            insert into budget_tenant (
                tenant_id, status, expiry_policy, denies_on_any_debt, clock_at, closed_at, version, outbox_seq
            )
            select t.tenant_id, case when t.deleted_at is null then 'ACTIVE' else 'CLOSED' end, 'AUTO_RELEASE', false,
                0, t.deleted_at, 0, 0
            from tenant t where t.tenant_id = k
            on conflict (tenant_id) do nothing;
            perform 1 from budget_tenant b where b.tenant_id = k for no key update;
        end if;
    end loop;
    return json_build_object(
        'now_ms', floor(extract(epoch from clock_timestamp()) * 1000)::bigint,
        'heads', (
            select json_agg(json_build_object('head', b, 'name', t.name))
            from budget_tenant b join tenant t on t.tenant_id = b.tenant_id
            where b.tenant_id = any (p_tenants) and t.tenant_id = any (p_tenants)
        ),
        'answers', (
            select json_agg(a)
            from unnest(p_owners, p_operations, p_keys) u (tenant_id, operation, idempotency_key),
                lateral (
                    select * from budget_answer r
                    where r.tenant_id = any (p_owners) and r.tenant_id = u.tenant_id
                        and r.operation = u.operation and r.idempotency_key = u.idempotency_key
                    offset 0
                ) a
        )
    );
end $$;

-- Writes one turn: everything or nothing. Heads carry the version they become; a head that moved on aborts it all, and so
-- does a reservation that is not active any more (I4). `on conflict` finds each row by its key, whatever the planner
-- believes about a young table.
create function budget_flush(
    p_route text, p_tenants text[], p_heads json, p_budgets json, p_reservations json, p_answers json, p_outbox json,
    p_debits json, p_fundings json, p_policies json, p_windows json, p_audit json, p_registry json, p_revoked json
) returns void language plpgsql as $$
declare
    written integer;
begin
    if p_registry is not null then
        -- Without an instant of making, it is there already and has another name.
        insert into tenant (tenant_id, name, created_at)
        select tenant_id, name, created_at from json_populate_recordset(null::tenant, p_registry)
        where created_at is not null order by tenant_id;
        update tenant t set name = d.name from json_populate_recordset(null::tenant, p_registry) d
        where t.tenant_id = any (p_tenants) and t.tenant_id = d.tenant_id and d.created_at is null and t.name <> d.name;
    end if;
    insert into budget_tenant as b select * from json_populate_recordset(null::budget_tenant, p_heads)
    on conflict (tenant_id) do update
    set status = excluded.status, metadata = excluded.metadata,
        default_overage_policy = excluded.default_overage_policy, default_ttl_ms = excluded.default_ttl_ms,
        max_ttl_ms = excluded.max_ttl_ms, max_extensions = excluded.max_extensions,
        expiry_policy = excluded.expiry_policy, denies_on_any_debt = excluded.denies_on_any_debt,
        extension_lead_max_ms = excluded.extension_lead_max_ms, clock_at = excluded.clock_at,
        suspended_at = excluded.suspended_at, closed_at = excluded.closed_at, updated_at = excluded.updated_at,
        next_expiry_at = excluded.next_expiry_at, version = excluded.version, outbox_seq = excluded.outbox_seq
    where b.tenant_id = any (p_tenants) and b.version = excluded.version - 1;
    get diagnostics written = row_count;
    if written <> cardinality(p_tenants) then
        raise exception 'a tenant has moved on' using errcode = '40001';
    end if;
    if p_answers is not null then
        insert into budget_answer select * from json_populate_recordset(null::budget_answer, p_answers);
    end if;
    if p_budgets is not null then
        insert into budget as b (
            tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
            commit_overage_policy, caps, rollover_policy, period_start_at, period_end_at, metadata, created_at,
            updated_at, closed_at
        )
        select tenant_id, scope_path, unit, budget_id, allocated, reserved, spent, debt, overdraft_limit, capped, status,
            commit_overage_policy, caps, rollover_policy, period_start_at, period_end_at, metadata, created_at,
            updated_at, closed_at
        from json_populate_recordset(null::budget, p_budgets)
        on conflict (tenant_id, scope_path, unit) do update
        set allocated = excluded.allocated, reserved = excluded.reserved, spent = excluded.spent,
            debt = excluded.debt, overdraft_limit = excluded.overdraft_limit, capped = excluded.capped,
            status = excluded.status, commit_overage_policy = excluded.commit_overage_policy,
            metadata = excluded.metadata, updated_at = excluded.updated_at, closed_at = excluded.closed_at
        where b.tenant_id = any (p_tenants) and b.budget_id = excluded.budget_id;
        get diagnostics written = row_count;
        if written <> json_array_length(p_budgets) then
            raise exception 'a budget is another one' using errcode = '40001';
        end if;
    end if;
    if p_reservations is not null then
        insert into budget_reservation as r (
            tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
            overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, metadata,
            charged, debts, finalized_at, committed_metadata, metrics, release_reason
        )
        select tenant_id, reservation_id, idempotency_key, subject, action, unit, estimate, scope_path, budgeted_scopes,
            overage_policy, created_at, expires_at, ttl_ms, grace_ms, max_extensions, extensions_used, status, metadata,
            charged, debts, finalized_at, committed_metadata, metrics, release_reason
        from json_populate_recordset(null::budget_reservation, p_reservations)
        on conflict (tenant_id, reservation_id) do update
        set expires_at = excluded.expires_at, extensions_used = excluded.extensions_used, status = excluded.status,
            charged = excluded.charged, debts = excluded.debts, finalized_at = excluded.finalized_at,
            committed_metadata = excluded.committed_metadata, metrics = excluded.metrics,
            release_reason = excluded.release_reason
        where r.tenant_id = any (p_tenants) and r.status = 'ACTIVE';
        get diagnostics written = row_count;
        if written <> json_array_length(p_reservations) then
            raise exception 'a budget reservation has ended' using errcode = '40001';
        end if;
    end if;
    if p_outbox is not null then
        insert into budget_outbox select * from json_populate_recordset(null::budget_outbox, p_outbox);
    end if;
    if p_debits is not null then
        insert into budget_debit select * from json_populate_recordset(null::budget_debit, p_debits);
    end if;
    if p_fundings is not null then
        insert into budget_funding select * from json_populate_recordset(null::budget_funding, p_fundings);
    end if;
    if p_policies is not null then
        insert into budget_policy as p select * from json_populate_recordset(null::budget_policy, p_policies)
        on conflict (tenant_id, policy_id) do update
        set name = excluded.name, description = excluded.description, priority = excluded.priority,
            caps = excluded.caps, commit_overage_policy = excluded.commit_overage_policy,
            ttl_override = excluded.ttl_override, rate_limits = excluded.rate_limits, status = excluded.status,
            effective_from_at = excluded.effective_from_at, effective_until_at = excluded.effective_until_at,
            updated_at = excluded.updated_at
        where p.tenant_id = any (p_tenants);
    end if;
    if p_windows is not null then
        insert into budget_rate_window as w select * from json_populate_recordset(null::budget_rate_window, p_windows)
        on conflict (tenant_id, policy_id, kind) do update
        set minute_at = excluded.minute_at, count = excluded.count where w.tenant_id = any (p_tenants);
    end if;
    if p_audit is not null then
        insert into budget_audit select * from json_populate_recordset(null::budget_audit, p_audit);
    end if;
    if p_revoked is not null then
        update api_key k set revoked_at = d.revoked_at
        from json_populate_recordset(null::api_key, p_revoked) d
        where k.tenant_id = any (p_tenants) and k.key_id = d.key_id and k.revoked_at is null;
    end if;
end $$;
