/** Every capacity reservation: its slots now, and its grants over past and coming days. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { useSearchWord } from '../../app/router';
import { Button } from '../../design/Button';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { CapacityListDocument, type CapacityHeadFragment } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { FitPanel } from '../fit/FitPanel';
import type { Ghost } from '../fit/fits';
import { CapacityCard } from './CapacityCard';
import { RangeBar } from './RangeBar';
import { Totals } from './Totals';
import { useRange } from './useRange';

export default function CapacityPage() {
  const [fitting, setFitting] = useSearchWord('fit');
  const [cursors, setCursors] = useState<(string | null)[]>([null]);
  const [ghost, setGhost] = useState<Ghost | null>(null);
  const range = useRange();
  return (
    <Page
      title="Capacity"
      lead="What is held at providers, what is granted of it, and what is free."
      actions={
        <Button look="main" aria-expanded={fitting === '1'} onClick={() => setFitting(fitting === '1' ? '' : '1')}>
          Find room for a grant
        </Button>
      }
    >
      {fitting === '1' && <FitPanel onGhost={setGhost} onClose={() => { setFitting(''); setGhost(null); }} />}
      <RangeBar range={range} />
      {cursors.map((after, index) => (
        <Reservations
          key={after ?? ''} after={after} range={range} ghost={ghost} isFirst={index === 0}
          onMore={index === cursors.length - 1 ? (next) => setCursors([...cursors, next]) : undefined}
        />
      ))}
    </Page>
  );
}

interface ReservationsProps {
  after: string | null;
  isFirst: boolean;
  range: ReturnType<typeof useRange>;
  ghost: Ghost | null;
  onMore: ((after: string) => void) | undefined;
}

/** One page of the list. Its cards follow their own changes; the list is read again only when the socket was lost. */
function Reservations({ after, isFirst, range, ghost, onMore }: ReservationsProps) {
  const { data, failure, refresh } = useLiveQuery({
    query: CapacityListDocument, variables: { after }, affectedBy: ({ kind }) => kind === 'anything',
  });
  const [heads, setHeads] = useState<ReadonlyMap<string, CapacityHeadFragment>>(new Map());
  const list = data?.capacityReservations;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="capacity" />;
  if (isFirst && list.nodes.length === 0) return <NoCapacity />;
  const shown = list.nodes.map((node) => newer(node, heads.get(node.id)));
  const { hasNextPage, endCursor } = list.pageInfo;
  return (
    <>
      {isFirst && <Totals heads={shown} count={list.totalCount ?? shown.length} />}
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {shown.map((head) => (
        <CapacityCard
          key={head.id} head={head} range={range} ghost={ghost?.capacityId === head.id ? ghost : null}
          onHead={(told) => setHeads((known) => new Map(known).set(told.id, told))}
        />
      ))}
      {onMore && hasNextPage && endCursor && <Button onClick={() => onMore(endCursor)}>Show more reservations</Button>}
    </>
  );
}

function newer(read: CapacityHeadFragment, told: CapacityHeadFragment | undefined): CapacityHeadFragment {
  return told && told.version >= read.version ? told : read;
}

function NoCapacity() {
  return (
    <Empty title="No capacity is known yet.">
      <p>
        Add a provider account with <code>createProviderAccount</code>, then let it be scanned, or send what an agent
        sees with <code>reportReservations</code>. What is reported appears here at once.
      </p>
    </Empty>
  );
}
