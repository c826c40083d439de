import { Button } from '../../design/Button';
import { Instant, Term } from '../../design/Instant';
import { FailureNote, Note, Waiting } from '../../design/Note';
import { RefusalNote } from '../../design/RefusalNote';
import { plural, showSlots } from '../../format/slots';
import { FitPlanDocument, type FitPlanQuery, type FitPlanQueryVariables } from '../../graphql/generated';
import { isRefused, useLiveQuery } from '../../graphql/live';

type Plan = Extract<FitPlanQuery['planGrant'], { __typename: 'GrantPlan' }>;
type Term = { startsAt: number; endsAt: number };

interface VerdictProps {
  input: FitPlanQueryVariables['input'];
  capacityId: string;
  onFit: (term: Term) => void;
}

/** What createGrant would answer right now; asked again whenever something changes on the reservation. */
export function Verdict({ input, capacityId, onFit }: VerdictProps) {
  const { data, failure, refresh } = useLiveQuery({
    query: FitPlanDocument, variables: { input },
    affectedBy: (change) => change.kind === 'anything' || (change.kind === 'capacity' && change.id === capacityId),
  });
  const plan = data?.planGrant;
  if (!plan) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="what would happen" />;
  if (isRefused(plan)) return <RefusalNote refusal={plan} />;
  return plan.accepted ? <Accepted plan={plan} slots={input.slots} /> : <Refused plan={plan} onFit={onFit} />;
}

function Accepted({ plan, slots }: { plan: Plan; slots: number }) {
  const [end] = plan.runsOut;
  return (
    <Note tone="good" title="It fits.">
      <p>
        At the peak of the term {plan.peak + slots} of {showSlots(plan.total)} are granted with it.
        {plan.adopted > 0 && ` It takes in ${plural(plan.adopted, 'instance')} that run already.`}
        {plan.physicalRoom < slots && ` Were it to start now, ${plan.physicalRoom} of its slots could be used at once; the others are still taken.`}
      </p>
      {end && <p className="soft">Nothing more could be granted from <Instant at={end.at} /> on.</p>}
    </Note>
  );
}

function Refused({ plan, onFit }: { plan: Plan; onFit: (term: Term) => void }) {
  const { refusal, obstacles } = plan;
  if (!refusal) return null;
  const fit = 'earliestFit' in refusal ? refusal.earliestFit : null;
  return (
    <RefusalNote refusal={refusal}>
      {obstacles.length > 0 && (
        <ul aria-label="What is in the way">
          {obstacles.slice(0, 3).map(({ startsAt, endsAt, granted, missing, grantIds }) => (
            <li key={startsAt}>
              <Term startsAt={startsAt} endsAt={endsAt} />: {granted} of {showSlots(plan.total)} granted
              to {plural(grantIds.length, 'grant')}, <b>{missing} missing</b>.
            </li>
          ))}
        </ul>
      )}
      {fit && (
        <p>
          The same fits from <Instant at={fit.startsAt} />.{' '}
          <Button onClick={() => onFit({ startsAt: fit.startsAt, endsAt: fit.endsAt })}>Use that term</Button>
        </p>
      )}
    </RefusalNote>
  );
}
