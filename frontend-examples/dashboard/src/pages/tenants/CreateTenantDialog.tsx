import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { go } from '../../app/router';
import { Confirm } from '../../design/Confirm';
import { TextField } from '../../design/Field';
import { CreateTenantDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';

export function CreateTenantDialog({ onClose }: { onClose: () => void }) {
  const { changes } = useSession();
  const notice = useNotice();
  const [tenantId, setTenantId] = useState('');
  const [name, setName] = useState('');
  const { outcome, refusal, ask, isBusy } = useIntent(CreateTenantDocument, ({ createTenant }) => createTenant, (made) => {
    notice(`${made.name} is a tenant now. Make it a key next.`);
    changes.tell({ kind: 'tenancy' });
    onClose();
    go(['tenants', made.id]);
  });
  return (
    <Confirm title="New tenant" action="Make the tenant" isBusy={isBusy} outcome={outcome} onClose={onClose} onConfirm={() => ask({ tenantId: tenantId.trim(), name: name.trim() })}>
      <TextField label="Id" value={tenantId} placeholder="acme" hint="It stays: lower-case letters, digits and hyphens, for all wires." problem={problemOf(refusal, 'tenantId')} onChange={(event) => setTenantId(event.target.value)} />
      <TextField label="Name" value={name} placeholder="Acme Corporation" problem={problemOf(refusal, 'name')} onChange={(event) => setName(event.target.value)} />
    </Confirm>
  );
}
