-- The audit log holds what failed as well, and what HTTP knows of a request.

alter table budget_audit
    add column status integer,
    add column error_code text, -- null: it was done
    add column user_agent text,
    add column subject json,
    add column action json,
    alter column resource_type drop not null, -- a request that failed may have named nothing
    alter column resource_id drop not null;
update budget_audit set status = case when operation like 'create%' then 201 else 200 end;
alter table budget_audit
    alter column status set not null,
    add constraint budget_audit_status check (status between 100 and 599),
    add constraint budget_audit_error check ((error_code is null) = (status < 400));

create index budget_audit_of_tenant on budget_audit (tenant_id, recorded_at desc, entry_id desc);
create index budget_audit_of_request on budget_audit (request_id) where request_id is not null;
create index budget_audit_of_trace on budget_audit (trace_id) where trace_id is not null;
