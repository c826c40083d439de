import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { useZone } from '../../app/preferences';
import { useTenants } from '../../app/tenants';
import { Confirm } from '../../design/Confirm';
import { TextField } from '../../design/Field';
import { plural, showSlots } from '../../format/slots';
import { fromField, toField } from '../../format/time';
import { AmendGrantDocument, EndGrantDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';
import { wholeOf } from '../fit/fits';
import type { Detail } from './GrantPage';

interface DialogProps {
  grant: Detail;
  onClose: () => void;
}

export function EndDialog({ grant, onClose }: DialogProps) {
  const { tenantId } = useSession();
  const { nameOf } = useTenants();
  const notice = useNotice();
  const isActive = grant.state === 'ACTIVE';
  const { outcome, ask, isBusy } = useIntent(EndGrantDocument, ({ endGrant }) => endGrant, ({ state }) => {
    notice(`The grant is ${state.toLowerCase()}.`);
    onClose();
  });
  return (
    <Confirm
      title={isActive ? 'End this grant now?' : 'Cancel this grant?'} action={isActive ? 'End the grant' : 'Cancel the grant'}
      isDanger isBusy={isBusy} outcome={outcome} onClose={onClose}
      onConfirm={() => ask({ tenantId, accountId: grant.accountId ?? '', grantId: grant.id })}
    >
      <p>
        {nameOf(grant.tenantId)} loses {showSlots(grant.slots)} {isActive ? 'at once' : 'before they begin'}. This cannot be
        taken back; another grant can be made, if there is room then.
      </p>
      {grant.running > 0 && <p>{plural(grant.running, 'instance')} in it {grant.running === 1 ? 'goes' : 'go'} on running, outside of any grant, while there are free slots.</p>}
    </Confirm>
  );
}

export function AmendDialog({ grant, onClose }: DialogProps) {
  const zone = useZone();
  const { tenantId } = useSession();
  const notice = useNotice();
  const [slots, setSlots] = useState(String(grant.slots));
  const [startsAt, setStartsAt] = useState<number | null>(grant.startsAt);
  const [endsAt, setEndsAt] = useState<number | null>(grant.endsAt);
  // The version that was looked at when this was opened: what somebody else does meanwhile is not overwritten.
  const [expectedVersion] = useState(grant.version);
  const { outcome, refusal, ask, isBusy } = useIntent(AmendGrantDocument, ({ amendGrant }) => amendGrant, (made) => {
    notice(`Amended: ${showSlots(made.slots)} now.`);
    onClose();
  });
  const isScheduled = grant.state === 'SCHEDULED';
  const wanted = wholeOf(slots);
  const submit = () => ask({
    tenantId, accountId: grant.accountId ?? '', grantId: grant.id, expectedVersion,
    slots: wanted === grant.slots ? null : wanted,
    startsAt: startsAt === grant.startsAt ? null : startsAt,
    endsAt: endsAt === grant.endsAt ? null : endsAt,
  });
  return (
    <Confirm title="Amend this grant" action="Amend the grant" isBusy={isBusy} outcome={outcome} onClose={onClose} onConfirm={submit}>
      <p className="soft">Slots and term change in one decision: nobody else can take the slots in between.</p>
      <div className="fields">
        <TextField label="Slots" inputMode="numeric" value={slots} onChange={(event) => setSlots(event.target.value)} problem={wanted ? problemOf(refusal, 'slots') : 'A whole number from 1 on.'} />
        {isScheduled && (
          <TextField
            label="Starts" type="datetime-local" value={startsAt === null ? '' : toField(startsAt, zone)} problem={problemOf(refusal, 'startsAt')}
            onChange={(event) => setStartsAt(fromField(event.target.value, zone))}
          />
        )}
        <TextField
          label="Ends" type="datetime-local" value={endsAt === null ? '' : toField(endsAt, zone)} problem={problemOf(refusal, 'endsAt')}
          onChange={(event) => setEndsAt(fromField(event.target.value, zone))}
        />
      </div>
    </Confirm>
  );
}
