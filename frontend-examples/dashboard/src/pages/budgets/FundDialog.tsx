import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { Confirm } from '../../design/Confirm';
import { Fact, Facts } from '../../design/Facts';
import { SelectField, TextField } from '../../design/Field';
import { exactAmount, parseAmount, showAmount, unitName } from '../../format/amounts';
import { FundBudgetDocument, type BudgetRowFragment, type FundingOperation } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';

interface FundDialogProps {
  budget: BudgetRowFragment;
  onClose: () => void;
}

const OPERATIONS: readonly { value: FundingOperation; label: string; action: string }[] = [
  { value: 'CREDIT', label: 'Add to what is allocated', action: 'Add it' },
  { value: 'DEBIT', label: 'Take away from what is allocated', action: 'Take it away' },
  { value: 'RESET', label: 'Set what is allocated', action: 'Set it' },
  { value: 'RESET_SPENT', label: 'Begin a new period: nothing spent yet', action: 'Begin the period' },
  { value: 'REPAY_DEBT', label: 'Pay back debt', action: 'Pay it back' },
];

export function FundDialog({ budget, onClose }: FundDialogProps) {
  const { isRoot } = useSession();
  const notice = useNotice();
  const { scope, unit, tenantId } = budget;
  const [operation, setOperation] = useState<FundingOperation>(budget.debt === '0' ? 'CREDIT' : 'REPAY_DEBT');
  const [text, setText] = useState('');
  const [reason, setReason] = useState('');
  const [isTried, setTried] = useState(false);
  const { outcome, refusal, ask, isBusy } = useIntent(FundBudgetDocument, ({ fundBudget }) => fundBudget, ({ after }) => {
    notice(`${showAmount(after.remaining, unit)} left in ${scope}.`);
    onClose();
  });
  const parsed = parseAmount(text, unit);
  const submit = () => {
    setTried(true);
    if (!parsed.amount) return;
    ask({ scope, unit, operation, amount: { unit, amount: parsed.amount }, reason: reason || null, tenantId: isRoot ? tenantId : null });
  };
  return (
    <Confirm title={`Fund ${scope}`} action={OPERATIONS.find(({ value }) => value === operation)?.action ?? ''} isBusy={isBusy} outcome={outcome} onConfirm={submit} onClose={onClose}>
      <Facts>
        <Fact name="Allocated">{exactAmount(budget.allocated, unit)}</Fact>
        <Fact name="Left">{exactAmount(budget.remaining, unit)}</Fact>
        {budget.debt !== '0' && <Fact name="Owed">{exactAmount(budget.debt, unit)}</Fact>}
      </Facts>
      <SelectField label="What" value={operation} choices={OPERATIONS} onChange={(event) => setOperation(event.target.value as FundingOperation)} />
      <TextField
        label={`Amount in ${unitName(unit)}`} inputMode="decimal" value={text} onChange={(event) => setText(event.target.value)}
        problem={problemOf(refusal, 'amount') ?? (isTried || text ? parsed.problem : null)}
        hint={parsed.amount && `Exactly ${exactAmount(parsed.amount, unit)}.`}
      />
      <TextField label="Reason" value={reason} hint="It stands in the audit log." onChange={(event) => setReason(event.target.value)} problem={problemOf(refusal, 'reason')} />
    </Confirm>
  );
}
