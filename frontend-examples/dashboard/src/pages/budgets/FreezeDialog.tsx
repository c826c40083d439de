import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { Confirm } from '../../design/Confirm';
import { TextField } from '../../design/Field';
import { FreezeBudgetDocument, UnfreezeBudgetDocument, type BudgetRowFragment } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { useSession } from '../../session/session';

interface FreezeDialogProps {
  budget: BudgetRowFragment;
  onClose: () => void;
}

export function FreezeDialog({ budget, onClose }: FreezeDialogProps) {
  const { isRoot } = useSession();
  const notice = useNotice();
  const [reason, setReason] = useState('');
  const [isFrozen] = useState(budget.status === 'FROZEN');
  const done = () => {
    notice(`${budget.scope} is ${isFrozen ? 'open for spending again' : 'frozen'}.`);
    onClose();
  };
  const freeze = useIntent(FreezeBudgetDocument, ({ freezeBudget }) => freezeBudget, done);
  const unfreeze = useIntent(UnfreezeBudgetDocument, ({ unfreezeBudget }) => unfreezeBudget, done);
  const { outcome, ask, isBusy } = isFrozen ? unfreeze : freeze;
  const { scope, unit, tenantId } = budget;
  return (
    <Confirm
      title={`${isFrozen ? 'Unfreeze' : 'Freeze'} ${scope}?`} action={isFrozen ? 'Unfreeze' : 'Freeze'} isDanger={!isFrozen}
      isBusy={isBusy} outcome={outcome} onClose={onClose}
      onConfirm={() => ask({ scope, unit, reason: reason || null, tenantId: isRoot ? tenantId : null })}
    >
      <p>
        {isFrozen
          ? 'New holds and debits are decided by what is left again.'
          : 'Every new hold and debit in this scope and below is denied until it is unfrozen. What is held already may still be settled.'}
      </p>
      <TextField label="Reason" value={reason} hint="It stands in the audit log." onChange={(event) => setReason(event.target.value)} />
    </Confirm>
  );
}
