-- Lists that operators ask for across tenants: all budgets in the order of their scopes, those over their limit, and what
-- became of one resource. None of these columns changes when a budget is spent, so updates stay in their page; that is
-- why debt has no index.
create index budget_by_scope on budget (scope_path, budget_id);
create index budget_over_limit on budget (scope_path, budget_id) where is_over_limit;
create index budget_audit_of_resource on budget_audit (resource_id, recorded_at desc, entry_id desc)
    where resource_id is not null;
