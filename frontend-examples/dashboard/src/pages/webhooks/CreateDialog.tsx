import { useState } from 'react';
import { useChosenTenant, useTenants } from '../../app/tenants';
import { Button } from '../../design/Button';
import { Confirm } from '../../design/Confirm';
import { Dialog } from '../../design/Dialog';
import { SelectField, TextField } from '../../design/Field';
import { Secret } from '../../design/Secret';
import { CreateWebhookDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';

const SYSTEM = '__system__';
const TYPES = [
  'custom.reservation-grant.created', 'custom.reservation-grant.active', 'custom.reservation-grant.amended',
  'custom.reservation-grant.ended', 'custom.reservation-grant.cancelled', 'budget.exhausted', 'budget.over_limit_entered',
  'budget.debt_incurred', 'budget.frozen', 'budget.funded', 'reservation.denied', 'reservation.expired',
];

export function CreateDialog({ onClose }: { onClose: () => void }) {
  const { isRoot, changes } = useSession();
  const { tenants } = useTenants();
  const [owner, setOwner] = useState(useChosenTenant() ?? '');
  const [url, setUrl] = useState('');
  const [name, setName] = useState('');
  const [types, setTypes] = useState<readonly string[]>([]);
  const [made, setMade] = useState<{ secret: string | null } | null>(null);
  const { outcome, refusal, ask, isBusy } = useIntent(CreateWebhookDocument, ({ createWebhook }) => createWebhook, ({ signingSecret }) => {
    setMade({ secret: signingSecret });
    changes.tell({ kind: 'webhook' });
  });
  if (made) return <Made secret={made.secret} onClose={onClose} />;
  const toggle = (type: string) => setTypes(types.includes(type) ? types.filter((one) => one !== type) : [...types, type]);
  const submit = () => ask({
    url: url.trim(), name: name || null, eventTypes: [...types], tenantId: isRoot ? owner || SYSTEM : null, disableAfterFailures: 10,
  });
  return (
    <Confirm title="New webhook" action="Subscribe it" isBusy={isBusy} outcome={outcome} onConfirm={submit} onClose={onClose}>
      <TextField label="URL" type="url" value={url} placeholder="https://hooks.example.com/earmark" problem={problemOf(refusal, 'url')} onChange={(event) => setUrl(event.target.value)} />
      <div className="fields">
        <TextField label="Name" value={name} problem={problemOf(refusal, 'name')} onChange={(event) => setName(event.target.value)} />
        {isRoot && (
          <SelectField
            label="Whose events" value={owner} onChange={(event) => setOwner(event.target.value)}
            choices={[{ value: '', label: 'Everybody’s' }, ...tenants.filter((tenant) => !tenant.isRoot).map((tenant) => ({ value: tenant.id, label: tenant.name }))]}
          />
        )}
      </div>
      <fieldset className="group">
        <legend>Told of</legend>
        <div className="checks">
          {TYPES.map((type) => (
            <label key={type} className="check">
              <input type="checkbox" checked={types.includes(type)} onChange={() => toggle(type)} /> <span>{type.replace('custom.', '')}</span>
            </label>
          ))}
        </div>
        {problemOf(refusal, 'eventTypes') && <p className="field-problem">{problemOf(refusal, 'eventTypes')}</p>}
      </fieldset>
    </Confirm>
  );
}

function Made({ secret, onClose }: { secret: string | null; onClose: () => void }) {
  return (
    <Dialog title="The webhook is subscribed" onClose={onClose}>
      <Secret what="signing secret" secret={secret} advice="Receivers check the header X-Cycles-Signature with it." />
      <div className="form-end"><Button look="main" onClick={onClose}>I have kept it</Button></div>
    </Dialog>
  );
}
