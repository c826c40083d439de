import { useState } from 'react';
import { useZone } from '../../app/preferences';
import { Button } from '../../design/Button';
import { Confirm } from '../../design/Confirm';
import { Dialog } from '../../design/Dialog';
import { SelectField, TextField } from '../../design/Field';
import { Secret } from '../../design/Secret';
import { fromField } from '../../format/time';
import { CreateApiKeyDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';

/** What keys are made for; anything finer can be said over GraphQL. */
const PURPOSES: readonly { value: string; label: string; permissions: string[] | null }[] = [
  { value: 'usual', label: 'What a tenant’s key usually may', permissions: null },
  { value: 'reader', label: 'Only look', permissions: ['compute:quotas:read', 'compute:instances:read', 'tenancy:read', 'budgets:read', 'balances:read', 'reservations:list', 'events:read'] },
  { value: 'agent', label: 'Hold and spend budgets', permissions: ['reservations:create', 'reservations:commit', 'reservations:release', 'reservations:extend', 'reservations:list', 'balances:read'] },
  { value: 'all', label: 'Everything', permissions: ['*'] },
];

export function CreateKeyDialog({ tenantId, onClose }: { tenantId: string; onClose: () => void }) {
  const zone = useZone();
  const { changes } = useSession();
  const [name, setName] = useState('');
  const [purpose, setPurpose] = useState('usual');
  const [expires, setExpires] = useState('');
  const [made, setMade] = useState<{ name: string; secret: string | null } | null>(null);
  const { outcome, refusal, ask, isBusy } = useIntent(CreateApiKeyDocument, ({ createApiKey }) => createApiKey, ({ secret, apiKey }) => {
    setMade({ name: apiKey.name, secret });
    changes.tell({ kind: 'tenancy' });
  });
  if (made) {
    return (
      <Dialog title={`The key ${made.name}`} onClose={onClose}>
        <Secret what="key" secret={made.secret} advice="Give it to whoever is to use it, over a way that others do not read." />
        <div className="form-end"><Button look="main" onClick={onClose}>I have kept it</Button></div>
      </Dialog>
    );
  }
  const permissions = PURPOSES.find(({ value }) => value === purpose)?.permissions ?? null;
  return (
    <Confirm
      title="New API key" action="Make the key" isBusy={isBusy} outcome={outcome} onClose={onClose}
      onConfirm={() => ask({ tenantId, name: name.trim(), permissions, expiresAt: fromField(expires, zone) })}
    >
      <TextField label="Name" value={name} placeholder="deploy-robot" problem={problemOf(refusal, 'name')} onChange={(event) => setName(event.target.value)} />
      <SelectField
        label="It may" value={purpose} choices={PURPOSES} hint={permissions ? permissions.join(', ') : undefined} problem={problemOf(refusal, 'permissions')}
        onChange={(event) => setPurpose(event.target.value)}
      />
      <TextField label="Expires" type="datetime-local" value={expires} hint="Empty: never." problem={problemOf(refusal, 'expiresAt')} onChange={(event) => setExpires(event.target.value)} />
    </Confirm>
  );
}
