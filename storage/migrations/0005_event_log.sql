-- The event log of the published wire: a stream in the order of its instants, and found by what its events have in common.

create index event_by_time on event (tenant_id, occurred_at, event_id collate "C");
create index event_by_type on event (tenant_id, type collate "C", occurred_at);
create index event_of_trace on event (tenant_id, trace_id) where trace_id is not null;
create index event_of_request on event (tenant_id, request_id) where request_id is not null;
create index event_of_correlation on event (tenant_id, (payload ->> 'correlation_id')) where payload ? 'correlation_id';
