import { useState } from 'react';
import { Button } from '../../design/Button';
import { Choices } from '../../design/Field';
import { FailureNote, Waiting } from '../../design/Note';
import { HOUR } from '../../format/time';
import { serverNow } from '../../graphql/clock';
import { EventHistoryDocument, type EventHistoryQuery } from '../../graphql/generated';
import { text } from '../../graphql/failures';
import { useLiveQuery } from '../../graphql/live';
import type { Happening } from '../../session/eventLog';
import { useSession } from '../../session/session';
import { EventTable } from './EventTable';
import { isShown, type EventFilter } from './filter';

const WINDOWS = [
  { value: '', label: 'Nothing', ms: 0 },
  { value: '1h', label: 'An hour', ms: HOUR },
  { value: '6h', label: '6 hours', ms: 6 * HOUR },
  { value: '1d', label: 'A day', ms: 24 * HOUR },
  { value: '7d', label: '7 days', ms: 168 * HOUR },
] as const;

type Window = (typeof WINDOWS)[number]['value'];

export function History({ filter, onTie }: { filter: EventFilter; onTie: (id: string) => void }) {
  const [chosen, choose] = useState<Window>('1h');
  const [until] = useState(serverNow);
  const ms = WINDOWS.find(({ value }) => value === chosen)?.ms ?? 0;
  return (
    <section className="panel" aria-labelledby="history">
      <header className="panel-head">
        <h2 id="history">Before that</h2>
        <span className="push"><Choices<Window> label="Look back" value={chosen} choices={WINDOWS} onChoose={choose} /></span>
      </header>
      {ms > 0 && <Past key={`${ms} ${filter.tenantId} ${filter.kind} ${filter.about}`} from={until - ms} until={until} filter={filter} onTie={onTie} />}
    </section>
  );
}

interface PastProps {
  from: number;
  until: number;
  filter: EventFilter;
  onTie: (id: string) => void;
}

function Past({ from, until, filter, onTie }: PastProps) {
  const { isRoot } = useSession();
  const [after, setAfter] = useState<string | null>(null);
  const { data, failure, refresh } = useLiveQuery({
    query: EventHistoryDocument,
    variables: { all: isRoot, tenantId: filter.tenantId, from, until, search: filter.about || null, category: null, after },
    affectedBy: () => false,
  });
  const list = data?.events;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="the past" />;
  const shown = list.nodes.map(happeningOf).filter((event) => isShown(event, { ...filter, about: '' }));
  const { hasNextPage, endCursor } = list.pageInfo;
  return (
    <>
      {shown.length > 0
        ? <EventTable events={shown} caption="Events before this tab was opened, the oldest first" onTie={onTie} />
        : <p className="soft">Nothing of this kind in this part of that time.</p>}
      <div className="toolbar">
        {after && <Button onClick={() => setAfter(null)}>Back to the oldest</Button>}
        {hasNextPage && endCursor && <Button onClick={() => setAfter(endCursor)}>Later ones</Button>}
      </div>
    </>
  );
}

function happeningOf(event: NonNullable<EventHistoryQuery['events']>['nodes'][number]): Happening {
  const { id, type, tenantId, occurredAt, grantId, requestId, traceId, payload } = event;
  const facts = typeof payload === 'object' && payload !== null ? payload as Record<string, unknown> : {};
  const correlationId = text(facts['correlation_id']) ?? text(facts['correlationId']) ?? null;
  return { id, type, tenantId, occurredAt, grantId, scope: text(facts['scope']) ?? null, correlationId, requestId, traceId, facts: payload };
}
