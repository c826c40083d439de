-- Evidence is removed when it is old; what a remembered answer refers to stays as long as that.

create index budget_evidence_age on budget_evidence (issued_at);
create index budget_evidence_of_evidence on budget_evidence_of (tenant_id, evidence_id);
