-- Notices ahead of a grant's start and end: how early each tenant wants them, and which have been given.

create table notice_lead (
    tenant_id   text primary key references tenant,
    starting_ms bigint,
    ending_ms   bigint,
    set_at      bigint not null
);

create table capacity_notice (
    key      text not null,
    grant_id text not null,
    type     text not null,
    due_at   bigint not null, -- the boundary that it announces: one that an amendment moves is announced again
    told_at  bigint not null,
    primary key (key, grant_id, type, due_at),
    foreign key (key, grant_id) references capacity_grant (key, grant_id) on delete cascade
);
