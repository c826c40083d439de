import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { Confirm } from '../../design/Confirm';
import { TextField } from '../../design/Field';
import { showAmount } from '../../format/amounts';
import { ReleaseHoldDocument, type HoldRowFragment } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { useSession } from '../../session/session';

export function ReleaseDialog({ hold, onClose }: { hold: HoldRowFragment; onClose: () => void }) {
  const { isRoot } = useSession();
  const notice = useNotice();
  const [reason, setReason] = useState('');
  const { outcome, ask, isBusy } = useIntent(ReleaseHoldDocument, ({ releaseBudget }) => releaseBudget, ({ released, unit }) => {
    notice(`${showAmount(released, unit)} are free again.`);
    onClose();
  });
  return (
    <Confirm
      title="Release this hold?" action="Release it" isDanger isBusy={isBusy} outcome={outcome} onClose={onClose}
      onConfirm={() => ask({ reservationId: hold.id, reason: reason || null, asAdmin: isRoot })}
    >
      <p>
        {showAmount(hold.reserved, hold.unit)} held for <b>{hold.action.name}</b> in <code>{hold.scope}</code> become free at
        once. Whoever works on it can no longer charge them: do this for work that is known to be dead.
      </p>
      <TextField label="Reason" value={reason} hint="It stands in the audit log." onChange={(event) => setReason(event.target.value)} />
    </Confirm>
  );
}
