/** One place and term: what the server would answer now, and the button that asks for it. */
import { useNotice } from '../../app/notices';
import { useZone } from '../../app/preferences';
import { To } from '../../app/router';
import { useTenants } from '../../app/tenants';
import { Button } from '../../design/Button';
import { TextField } from '../../design/Field';
import { NotDone } from '../../design/Outcome';
import { lastPart } from '../../format/names';
import { showSlots } from '../../format/slots';
import { fromField, toField } from '../../format/time';
import { CreateGrantDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { problemOf } from '../../graphql/refusals';
import { useSession } from '../../session/session';
import type { Choice, Wish } from './fits';
import { Verdict } from './Verdict';

interface FitPlanProps {
  choice: Choice;
  wish: Wish;
  slots: number;
  /** Null: back to the places. */
  onChoose: (choice: Choice | null) => void;
  onDone: () => void;
}

export function FitPlan({ choice, wish, slots, onChoose, onDone }: FitPlanProps) {
  const { nameOf } = useTenants();
  const { tenantId } = useSession();
  const notice = useNotice();
  const { outcome, refusal, ask, isBusy } = useIntent(CreateGrantDocument, ({ createGrant }) => createGrant, ({ id }) => {
    notice(<>Granted {showSlots(slots)} to {nameOf(wish.tenantId)}. <To to={['grants', id]}>Look at it</To></>);
    onDone();
  });
  const request = { ...requestOf(choice, wish, slots), tenantId };
  const place = lastPart(choice.place.reservationId);
  return (
    <form className="form" onSubmit={(event) => { event.preventDefault(); ask(request); }} aria-label={`Grant on ${place}`}>
      <h3>{showSlots(slots)} on {place}{wish.tenantId && ` for ${nameOf(wish.tenantId)}`}</h3>
      <Terms choice={choice} onChoose={onChoose} problems={{ starts: problemOf(refusal, 'startsAt'), ends: problemOf(refusal, 'endsAt') }} />
      {wish.tenantId
        ? <Verdict input={request} capacityId={choice.place.id} onFit={(fit) => onChoose({ ...choice, ...fit })} />
        : <p className="soft">Choose the tenant that gets it, and you see what would happen.</p>}
      <NotDone outcome={outcome} />
      <div className="form-end">
        <Button onClick={() => onChoose(null)}>Other places</Button>
        <Button type="submit" look="main" isBusy={isBusy} disabled={!wish.tenantId}>Grant {showSlots(slots)}</Button>
      </div>
    </form>
  );
}

function requestOf({ place, startsAt, endsAt }: Choice, { tenantId, projectId }: Wish, slots: number) {
  const where = { accountId: place.accountId, reservationId: place.reservationId };
  return { ...where, grantTenantId: tenantId, projectId: projectId || null, slots, startsAt, endsAt };
}

interface TermsProps {
  choice: Choice;
  onChoose: (choice: Choice) => void;
  problems: { starts: string | null; ends: string | null };
}

function Terms({ choice, onChoose, problems }: TermsProps) {
  const zone = useZone();
  const suffix = zone === 'utc' ? ' (UTC)' : '';
  const set = (part: 'startsAt' | 'endsAt') => (event: { target: { value: string } }) => {
    const at = fromField(event.target.value, zone);
    if (at !== null) onChoose({ ...choice, [part]: at });
  };
  return (
    <div className="fields">
      <TextField label={`Starts${suffix}`} type="datetime-local" value={toField(choice.startsAt, zone)} problem={problems.starts} onChange={set('startsAt')} />
      <TextField label={`Ends${suffix}`} type="datetime-local" value={toField(choice.endsAt, zone)} problem={problems.ends} onChange={set('endsAt')} />
    </div>
  );
}
