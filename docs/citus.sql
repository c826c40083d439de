-- Distributes Earmark's tables over a Citus cluster. Run once, on the coordinator, after `earmark migrate` and before the
-- first server. See citus.md.
set citus.shard_count = 16; -- two to four for each worker that is planned
set citus.multi_shard_modify_mode = 'sequential';

-- Small, and named by many: a copy on every node.
select create_reference_table('tenant');
select create_reference_table('project');
select create_reference_table('api_key');
select create_reference_table('provider_account');
select create_reference_table('pool');
select create_reference_table('pool_offer');
select create_reference_table('notice_lead');
select create_reference_table('bulk_run');
select create_reference_table('evidence_key');
select create_reference_table('webhook_security');

-- By capacity reservation.
select create_distributed_table('capacity_reservation', 'key');
select create_distributed_table('capacity_grant', 'key', colocate_with := 'capacity_reservation');
select create_distributed_table('capacity_instance', 'key', colocate_with := 'capacity_reservation');
select create_distributed_table('capacity_segment', 'key', colocate_with := 'capacity_reservation');
select create_distributed_table('capacity_outbox', 'key', colocate_with := 'capacity_reservation');
select create_distributed_table('capacity_notice', 'key', colocate_with := 'capacity_reservation');

-- Registries of names that must be found, or be unique, without a key.
select create_distributed_table('capacity_locator', 'id', colocate_with := 'none');
select create_distributed_table('answer', 'owner', colocate_with := 'none');

-- By tenant.
select create_distributed_table('budget_tenant', 'tenant_id', colocate_with := 'none');
select create_distributed_table('budget', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_reservation', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_debit', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_funding', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_policy', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_rate_window', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_answer', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_evidence', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_evidence_of', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_audit', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_burn', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('budget_outbox', 'key', colocate_with := 'budget_tenant');
select create_distributed_table('event_stream', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('event', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('usage_record', 'tenant_id', colocate_with := 'budget_tenant');
select create_distributed_table('key_attempt', 'tenant_id', colocate_with := 'budget_tenant');

-- By webhook.
select create_distributed_table('webhook_subscription', 'subscription_id', colocate_with := 'none');
select create_distributed_table('webhook_head', 'subscription_id', colocate_with := 'webhook_subscription');
select create_distributed_table('webhook_delivery', 'subscription_id', colocate_with := 'webhook_subscription');

-- One row each, and locked by whoever has the turn: on the coordinator alone.
select citus_add_local_table_to_metadata('webhook_cursor');
select citus_add_local_table_to_metadata('job_run');
select citus_add_local_table_to_metadata('schema_migration');

-- The write of a turn goes to the node that has its key.
select create_distributed_function(oid::regprocedure, 'p_route', colocate_with := 'capacity_reservation')
    from pg_proc where proname = 'capacity_flush';
select create_distributed_function(oid::regprocedure, 'p_route', colocate_with := 'budget_tenant')
    from pg_proc where proname = 'budget_flush';
