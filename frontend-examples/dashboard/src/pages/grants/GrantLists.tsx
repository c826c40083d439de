import { Badge } from '../../design/Badge';
import { Instant, Term } from '../../design/Instant';
import { Table, type Column } from '../../design/Table';
import { shortId, words } from '../../format/names';
import { plural } from '../../format/slots';
import type { Detail } from './GrantPage';

type Instance = NonNullable<Detail['instances']>['nodes'][number];
type Event = NonNullable<Detail['events']>['nodes'][number];

const INSTANCES: readonly Column<Instance>[] = [
  { name: 'Name', cell: ({ id, name }) => <span title={id}>{name}</span> },
  { name: 'State', cell: ({ runState }) => <Badge tone={runState === 'RUNNING' ? 'good' : 'neutral'}>{runState.toLowerCase()}</Badge> },
  { name: 'Billed', cell: ({ billingMode }) => words(billingMode) },
  { name: 'Project', cell: ({ projectId }) => <code title={projectId}>{shortId(projectId)}</code> },
  { name: 'Made', cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
];

export function Instances({ grant }: { grant: Detail }) {
  const nodes = grant.instances?.nodes ?? [];
  const left = (grant.instances?.totalCount ?? nodes.length) - nodes.length;
  return (
    <section className="panel" aria-labelledby="instances">
      <header className="panel-head"><h2 id="instances">Instances</h2></header>
      {nodes.length > 0
        ? <Table caption="Instances in the grant" columns={INSTANCES} rows={nodes} keyOf={({ id }) => id} />
        : <p className="soft">Nothing is in it. Instances of its tenant enter when they start, or when the grant does.</p>}
      {left > 0 && <p className="soft small">{plural(left, 'older instance')} not shown.</p>}
    </section>
  );
}

const EVENTS: readonly Column<Event>[] = [
  { name: 'What', cell: ({ type, reason }) => <><b>{words(type.replace('reservation-grant.', ''))}</b>{reason && <span className="soft"> · {words(reason)}</span>}</> },
  { name: 'When', cell: ({ occurredAt }) => <Instant at={occurredAt} relative /> },
  { name: 'Slots', cell: ({ slots }) => slots ?? '', isNumber: true },
  { name: 'Term', cell: ({ startsAt, endsAt }) => (startsAt != null && endsAt != null ? <Term startsAt={startsAt} endsAt={endsAt} /> : '') },
  { name: 'Request', cell: ({ requestId }) => requestId && <code className="small">{shortId(requestId)}</code> },
];

export function Events({ grant }: { grant: Detail }) {
  return (
    <section className="panel" aria-labelledby="events">
      <header className="panel-head"><h2 id="events">What happened</h2></header>
      <Table caption="Events of the grant, the oldest first" columns={EVENTS} rows={grant.events?.nodes ?? []} keyOf={({ id }) => id} />
    </section>
  );
}
