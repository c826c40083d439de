/** Who uses this server, and with which keys. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { To, useSearchWord } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { Badge } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Pager } from '../../design/Pager';
import { Table, type Column } from '../../design/Table';
import { TenantListDocument, type TenantListQuery } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { CreateTenantDialog } from './CreateTenantDialog';
import { Keys } from './Keys';

type Tenant = NonNullable<TenantListQuery['tenants']>['nodes'][number];

export default function TenantsPage() {
  const { isRoot, can, tenantId } = useSession();
  const [isMaking, setMaking] = useState(false);
  if (!isRoot) return <Page title="API keys" lead="Who may act for you, and what each key allows."><Keys tenantId={tenantId} /></Page>;
  return (
    <Page
      title="Tenants and keys" lead="Who uses this server. Choose one to see its keys."
      actions={can('tenancy:manage') && <Button look="main" onClick={() => setMaking(true)}>New tenant…</Button>}
    >
      <Tenants />
      {isMaking && <CreateTenantDialog onClose={() => setMaking(false)} />}
    </Page>
  );
}

function Tenants() {
  const [after] = useSearchWord('after');
  const { data, failure, refresh } = useLiveQuery({
    query: TenantListDocument, variables: { after: after || null },
    affectedBy: ({ kind }) => kind === 'tenancy' || kind === 'anything',
  });
  const list = data?.tenants;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="tenants" />;
  if (list.nodes.length === 0) return <Empty title="No tenants yet."><p>Make the first one above.</p></Empty>;
  return (
    <section className="panel" aria-label="Tenants">
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      <Table caption="Tenants, the newest first" columns={COLUMNS} rows={list.nodes} keyOf={({ id }) => id} />
      <Pager shown={list.nodes.length} total={list.totalCount} what="tenants" page={list.pageInfo} />
    </section>
  );
}

const COLUMNS: readonly Column<Tenant>[] = [
  { name: 'Tenant', cell: ({ id }) => <To to={['tenants', id]}><TenantName id={id} /></To> },
  { name: 'Id', cell: ({ id }) => <code>{id}</code> },
  { name: 'State', cell: (tenant) => <Standing tenant={tenant} /> },
  { name: 'Made', cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
];

export function Standing({ tenant: { isRoot, standing } }: { tenant: Pick<Tenant, 'isRoot' | 'standing'> }) {
  if (isRoot) return <Badge tone="info">the platform</Badge>;
  if (standing?.status === 'SUSPENDED') return <Badge tone="warn">suspended</Badge>;
  return standing?.status === 'CLOSED' ? <Badge>closed</Badge> : <Badge tone="good">active</Badge>;
}
