/** Who is told by HTTP of what happens. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { To, useSearchWord } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { useChosenTenant } from '../../app/tenants';
import { Button } from '../../design/Button';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Pager } from '../../design/Pager';
import { Table, type Column } from '../../design/Table';
import { WebhookListDocument, type WebhookRowFragment } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { CreateDialog } from './CreateDialog';
import { Status, subjectsOf } from './Status';

export default function WebhooksPage() {
  const { can } = useSession();
  const [isMaking, setMaking] = useState(false);
  return (
    <Page
      title="Webhooks" lead="Addresses that are told of events, signed and with retries."
      actions={can('webhooks:write') && <Button look="main" onClick={() => setMaking(true)}>New webhook…</Button>}
    >
      <Webhooks />
      {isMaking && <CreateDialog onClose={() => setMaking(false)} />}
    </Page>
  );
}

function Webhooks() {
  const { isRoot } = useSession();
  const tenantId = useChosenTenant();
  const [after] = useSearchWord('after');
  const { data, failure, refresh } = useLiveQuery({
    query: WebhookListDocument,
    variables: { all: isRoot && !tenantId, tenantId: isRoot ? tenantId : null, after: after || null },
    affectedBy: ({ kind }) => kind === 'webhook' || kind === 'anything',
  });
  const list = data?.webhooks;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="webhooks" />;
  if (list.nodes.length === 0) return <NoWebhooks />;
  return (
    <section className="panel" aria-label="Webhooks">
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      <Table caption="Webhooks" columns={columnsFor(isRoot)} rows={list.nodes} keyOf={({ id }) => id} markOf={({ status }) => (status === 'DISABLED' ? 'bad' : undefined)} />
      <Pager shown={list.nodes.length} total={list.totalCount} what="webhooks" page={list.pageInfo} />
    </section>
  );
}

function columnsFor(isRoot: boolean): Column<WebhookRowFragment>[] {
  const columns: Column<WebhookRowFragment>[] = [
    { name: 'Address', cell: ({ id, name, url }) => <span className="two-lines"><To to={['webhooks', id]}>{name || url}</To>{name && <span className="soft small">{url}</span>}</span> },
    { name: 'State', cell: (webhook) => <Status webhook={webhook} /> },
    { name: 'Tenant', cell: ({ tenantId }) => (tenantId === '__system__' ? 'everybody’s events' : <TenantName id={tenantId} />) },
    { name: 'Told of', cell: (webhook) => <span className="small">{subjectsOf(webhook)}</span> },
    { name: 'Last success', cell: ({ lastSuccessAt }) => (lastSuccessAt === null ? <span className="soft">never</span> : <Instant at={lastSuccessAt} relative />) },
  ];
  return isRoot ? columns : columns.filter(({ name }) => name !== 'Tenant');
}

function NoWebhooks() {
  return <Empty title="Nobody is told yet."><p>A webhook gets the events that you name, by type or category, at an https address of yours.</p></Empty>;
}
