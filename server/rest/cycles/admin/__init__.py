"""The admin plane of the Cycles wire (11): tenants, keys, budgets, policies, the audit log. One module a concept."""
