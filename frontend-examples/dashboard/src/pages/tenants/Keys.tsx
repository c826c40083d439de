import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { Badge } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Confirm } from '../../design/Confirm';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Table, type Column } from '../../design/Table';
import { RevokeApiKeyDocument, TenantKeysDocument, type KeyRowFragment } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { CreateKeyDialog } from './CreateKeyDialog';

export function Keys({ tenantId }: { tenantId: string }) {
  const { can, viewer } = useSession();
  const [isMaking, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<KeyRowFragment | null>(null);
  const { data, failure, refresh } = useLiveQuery({
    query: TenantKeysDocument, variables: { tenantId },
    affectedBy: ({ kind }) => kind === 'tenancy' || kind === 'anything',
  });
  const keys = data?.apiKeys?.nodes;
  const mayManage = can('tenancy:manage');
  return (
    <section className="panel" aria-labelledby="keys">
      <header className="panel-head">
        <h2 id="keys">API keys</h2>
        {mayManage && <span className="push"><Button look="main" onClick={() => setMaking(true)}>New key…</Button></span>}
      </header>
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {!failure && !data && <Waiting what="keys" />}
      {keys?.length === 0 && <Empty title="No keys."><p>Nobody can act for this tenant before it has one.</p></Empty>}
      {keys && keys.length > 0 && <Table caption="API keys, the newest first" columns={columnsFor(viewer.apiKey.id, mayManage ? setRevoking : null)} rows={keys} keyOf={({ id }) => id} />}
      {isMaking && <CreateKeyDialog tenantId={tenantId} onClose={() => setMaking(false)} />}
      {revoking && <RevokeDialog apiKey={revoking} isOwn={revoking.id === viewer.apiKey.id} onClose={() => setRevoking(null)} />}
    </section>
  );
}

function columnsFor(ownId: string, onRevoke: ((key: KeyRowFragment) => void) | null): Column<KeyRowFragment>[] {
  return [
    { name: 'Key', cell: ({ id, name, prefix }) => <span className="two-lines"><span><b>{name}</b> {id === ownId && <Badge tone="info">this one</Badge>}</span><code className="soft small">{prefix}…</code></span> },
    { name: 'Allows', cell: ({ permissions }) => <span className="small">{permissions.includes('*') ? 'everything' : permissions.join(', ')}</span> },
    { name: 'Made', cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
    { name: 'Last used', cell: ({ lastUsedAt }) => (lastUsedAt === null ? <span className="soft">never</span> : <Instant at={lastUsedAt} relative />) },
    { name: 'Expires', cell: ({ expiresAt }) => (expiresAt === null ? <span className="soft">never</span> : <Instant at={expiresAt} relative />) },
    { name: 'Actions', isNumber: true, cell: (key) => onRevoke && <span className="row-actions"><Button look="danger" onClick={() => onRevoke(key)}>Revoke…<span className="hidden-text"> {key.name}</span></Button></span> },
  ];
}

interface RevokeDialogProps {
  apiKey: KeyRowFragment;
  isOwn: boolean;
  onClose: () => void;
}

function RevokeDialog({ apiKey, isOwn, onClose }: RevokeDialogProps) {
  const { changes } = useSession();
  const notice = useNotice();
  const { outcome, ask, isBusy } = useIntent(RevokeApiKeyDocument, ({ revokeApiKey }) => revokeApiKey, () => {
    notice(`The key ${apiKey.name} is revoked.`);
    changes.tell({ kind: 'tenancy' });
    onClose();
  });
  return (
    <Confirm title={`Revoke the key ${apiKey.name}?`} action="Revoke it" isDanger isBusy={isBusy} outcome={outcome} onClose={onClose} onConfirm={() => ask({ keyId: apiKey.id })}>
      <p>Whoever uses <code>{apiKey.prefix}…</code> is refused from now on, and their streams end. This is for good.</p>
      {isOwn && <p className="bad-text">It is the key that you are signed in with: you will be signed out.</p>}
    </Confirm>
  );
}
