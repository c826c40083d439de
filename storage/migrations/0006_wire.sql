-- What the published wire tells of tenants and keys, and where to find a policy that only its id names.

alter table api_key add column revoked_reason text;

alter table budget_tenant add column parent_tenant_id text; -- as it was given: whose organization it belongs to
create index budget_tenant_of_parent on budget_tenant (parent_tenant_id) where parent_tenant_id is not null;

-- Asked by operators, rarely. An id is one tenant's.
create index budget_policy_by_id on budget_policy (policy_id);
