import { useNow } from '../../app/now';
import { useTenants } from '../../app/tenants';
import { SlotsBar } from '../../charts/SlotsBar';
import { Timeline } from '../../charts/Timeline';
import { Badge } from '../../design/Badge';
import { FailureNote, Note, Waiting } from '../../design/Note';
import { plural, showSlots } from '../../format/slots';
import { lastPart } from '../../format/names';
import { CapacityChangedDocument, CapacityTimelineDocument, type CapacityHeadFragment } from '../../graphql/generated';
import { useLiveQuery, useStream } from '../../graphql/live';
import { useSession } from '../../session/session';
import type { Ghost } from '../fit/fits';
import { StepsTable } from './StepsTable';
import type { Range } from './useRange';

interface CapacityCardProps {
  head: CapacityHeadFragment;
  range: Range;
  ghost: Ghost | null;
  onHead: (head: CapacityHeadFragment) => void;
}

export function CapacityCard({ head, range, ghost, onHead }: CapacityCardProps) {
  const { changes } = useSession();
  useStream({
    document: CapacityChangedDocument,
    variables: { id: head.id },
    onValue: ({ capacityReservationChanged: told }) => {
      onHead(told);
      changes.tell({ kind: 'capacity', id: told.id });
    },
  }, head.id, head.status === 'GONE');
  return (
    <section className="panel capacity" aria-labelledby={`name-${head.id}`}>
      <header className="panel-head">
        <h2 id={`name-${head.id}`} title={head.reservationId}>{lastPart(head.reservationId)}</h2>
        <Status head={head} />
        <p className="soft">{head.flavor} · {head.region} · {head.provider} · {head.poolId ? `pool ${head.poolId}` : 'in no pool'}</p>
      </header>
      <Advice head={head} />
      <SlotsBar head={head} />
      <Grants head={head} range={range} ghost={ghost} />
    </section>
  );
}

function Status({ head }: { head: CapacityHeadFragment }) {
  if (head.status === 'GONE') return <Badge tone="bad">gone</Badge>;
  if (head.status === 'NOT_READY') return <Badge tone="warn">not ready</Badge>;
  return <Badge tone="good">ready</Badge>;
}

function Advice({ head }: { head: CapacityHeadFragment }) {
  if (head.status === 'GONE') {
    return <Note tone="warn" title="The provider no longer reports it."><p>Its grants are over and its instances are billed on demand.</p></Note>;
  }
  if (head.shortfall > 0) {
    return (
      <Note tone="bad" title={`${showSlots(head.shortfall)} short.`}>
        <p>At the peak more is granted than the provider holds. End or shrink a grant, or have the reservation enlarged.</p>
      </Note>
    );
  }
  if (!head.poolId) {
    return <Note tone="info" title="Not bound to a pool."><p>No grants can be made on it before <code>bindReservation</code>.</p></Note>;
  }
  return null;
}

function Grants({ head, range, ghost }: { head: CapacityHeadFragment; range: Range; ghost: Ghost | null }) {
  const { nameOf, hueOf } = useTenants();
  const now = useNow();
  const { data, failure, refresh } = useLiveQuery({
    query: CapacityTimelineDocument,
    variables: { id: head.id, from: range.from, to: range.to },
    affectedBy: (change) => change.kind === 'anything' || (change.kind === 'capacity' && change.id === head.id),
  });
  const found = data?.capacityReservation;
  if (!found) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="its grants" />;
  const grants = (found.grants?.nodes ?? []).filter(({ state }) => state !== 'CANCELLED');
  const steps = found.availability ?? [];
  const count = found.grants?.totalCount ?? grants.length;
  const left = count - (found.grants?.nodes.length ?? 0);
  return (
    <>
      <Timeline
        name={lastPart(head.reservationId)} total={head.total} from={range.from} to={range.to} now={now}
        grants={grants} steps={steps} ghost={ghost} nameOf={nameOf} hueOf={hueOf}
      />
      {left > 0 && <p className="soft small">{plural(left, 'older grant')} of this stretch not drawn; the outline counts them.</p>}
      {grants.length === 0 && <p className="soft">No grants in this stretch of time.</p>}
      <StepsTable steps={steps} to={range.to} />
    </>
  );
}
