-- The version that its reservation got when a row was last written. A node that was overtaken reads only what is newer than
-- its books. There is no index: it is a look at the rows of one key, and writing is what must be cheap.
alter table capacity_grant add column turn bigint default 0;
alter table capacity_instance add column turn bigint default 0;

-- What is there already is older than any books. A row that is put in without it counts as new to everybody.
alter table capacity_grant alter column turn drop default;
alter table capacity_instance alter column turn drop default;
