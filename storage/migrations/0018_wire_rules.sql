-- Scopes are lower-case and tenants' ids are not: an operator who names a scope names its tenant in any case.
create index tenant_folded on tenant (lower(tenant_id));
