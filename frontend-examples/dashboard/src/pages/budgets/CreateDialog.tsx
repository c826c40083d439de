import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { useTenants } from '../../app/tenants';
import { Confirm } from '../../design/Confirm';
import { SelectField, TextField } from '../../design/Field';
import { parseAmount, UNITS, unitName } from '../../format/amounts';
import { CreateBudgetDocument, type BudgetUnit, type OveragePolicy } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';

const POLICIES: readonly { value: '' | OveragePolicy; label: string }[] = [
  { value: '', label: 'as the tenant has it' },
  { value: 'REJECT', label: 'refuse what is too much' },
  { value: 'ALLOW_IF_AVAILABLE', label: 'charge what is there' },
  { value: 'ALLOW_WITH_OVERDRAFT', label: 'go into debt, up to the overdraft limit' },
];

export function CreateDialog({ tenantId, onClose }: { tenantId: string | null; onClose: () => void }) {
  const session = useSession();
  const { tenants } = useTenants();
  const notice = useNotice();
  const [owner, setOwner] = useState(tenantId ?? (session.isRoot ? '' : session.tenantId));
  const [below, setBelow] = useState('');
  const [unit, setUnit] = useState<BudgetUnit>('USD_MICROCENTS');
  const [allocated, setAllocated] = useState('');
  const [overdraft, setOverdraft] = useState('');
  const [policy, setPolicy] = useState<'' | OveragePolicy>('');
  const [isTried, setTried] = useState(false);
  const { outcome, refusal, ask, isBusy } = useIntent(CreateBudgetDocument, ({ createBudget }) => createBudget, ({ scope }) => {
    notice(`${scope} has a budget.`);
    onClose();
  });
  const amount = parseAmount(allocated, unit);
  const limit = overdraft ? parseAmount(overdraft, unit) : null;
  const submit = () => {
    setTried(true);
    if (!owner || !amount.amount || limit?.problem) return;
    ask({
      tenantId: session.isRoot ? owner : null, scope: scopeOf(owner, below), unit, allocated: { unit, amount: amount.amount },
      overdraftLimit: limit?.amount ? { unit, amount: limit.amount } : null, commitOveragePolicy: policy || null, rolloverPolicy: 'NONE',
    });
  };
  return (
    <Confirm title="New budget" action="Make the budget" isBusy={isBusy} outcome={outcome} onConfirm={submit} onClose={onClose}>
      <div className="fields">
        {session.isRoot && (
          <SelectField
            label="Whose" value={owner} problem={isTried && !owner ? 'Choose a tenant.' : null} onChange={(event) => setOwner(event.target.value)}
            choices={[{ value: '', label: 'Choose…' }, ...tenants.filter(({ isRoot }) => !isRoot).map(({ id, name }) => ({ value: id, label: name }))]}
          />
        )}
        <SelectField label="Unit" value={unit} choices={UNITS.map((value) => ({ value, label: unitName(value) }))} onChange={(event) => setUnit(event.target.value as BudgetUnit)} />
      </div>
      <TextField
        label="Scope below the tenant" value={below} placeholder="agent:planner" onChange={(event) => setBelow(event.target.value)}
        hint={<>The whole scope is <code>{scopeOf(owner || '…', below)}</code>. Empty: the tenant itself.</>} problem={problemOf(refusal, 'scope')}
      />
      <div className="fields">
        <TextField
          label={`Allocated, in ${unitName(unit)}`} inputMode="decimal" value={allocated} onChange={(event) => setAllocated(event.target.value)}
          problem={problemOf(refusal, 'allocated') ?? (isTried || allocated ? amount.problem : null)}
        />
        <TextField
          label="Overdraft limit" inputMode="decimal" value={overdraft} hint="Empty: none." onChange={(event) => setOverdraft(event.target.value)}
          problem={problemOf(refusal, 'overdraftLimit') ?? limit?.problem}
        />
      </div>
      <SelectField label="When work costs more than was held" value={policy} choices={POLICIES} onChange={(event) => setPolicy(event.target.value as '' | OveragePolicy)} />
    </Confirm>
  );
}

function scopeOf(tenantId: string, below: string): string {
  const path = below.trim().replace(/^\/+|\/+$/g, '');
  return path ? `tenant:${tenantId}/${path}` : `tenant:${tenantId}`;
}
