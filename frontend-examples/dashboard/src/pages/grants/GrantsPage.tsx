/** Who holds what: every grant with its term, what runs in it, and what was paid for in vain. */
import { Page } from '../../app/Page';
import { To, useSearchWord } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { useChosenTenant } from '../../app/tenants';
import { Choices } from '../../design/Field';
import { Term } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Pager } from '../../design/Pager';
import { Table, type Column } from '../../design/Table';
import { lastPart, shortId } from '../../format/names';
import { showSlots, slotHours } from '../../format/slots';
import { GrantListDocument, type GrantRowFragment, type GrantState } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { FollowCapacity } from './FollowCapacity';
import { State } from './GrantState';
import { Utilisation, wasteOf } from './Utilisation';

const STATES = [
  { value: '', label: 'All' },
  { value: 'ACTIVE', label: 'Active' },
  { value: 'SCHEDULED', label: 'Scheduled' },
  { value: 'ENDED', label: 'Ended' },
  { value: 'CANCELLED', label: 'Cancelled' },
] as const;

type Chosen = '' | GrantState;

export default function GrantsPage() {
  const [word, setWord] = useSearchWord('state');
  const state = STATES.find(({ value }) => value === word)?.value ?? '';
  return (
    <Page title="Grants" lead="Slots committed to tenants for a term, and what becomes of them.">
      <div className="toolbar">
        <Choices<Chosen> label="State" value={state} choices={STATES} onChoose={setWord} />
      </div>
      <Grants state={state} />
    </Page>
  );
}

function Grants({ state }: { state: Chosen }) {
  const { isRoot } = useSession();
  const tenantId = useChosenTenant();
  const [after] = useSearchWord('after');
  const { data, failure, refresh } = useLiveQuery({
    query: GrantListDocument,
    variables: { all: isRoot, tenantId: isRoot ? tenantId : null, state: state || null, after: after || null },
    affectedBy: ({ kind }) => kind === 'grant' || kind === 'capacity' || kind === 'anything',
  });
  const list = data?.grants;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="grants" />;
  if (list.nodes.length === 0) return <NoGrants state={state} />;
  return (
    <section className="panel" aria-label="Grants">
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {placesOf(list.nodes).map((place) => <FollowCapacity key={place.reservationId} {...place} />)}
      <Table caption="Grants, the newest first" columns={columnsFor(isRoot)} rows={list.nodes} keyOf={({ id }) => id} />
      <Pager shown={list.nodes.length} total={list.totalCount} what="grants" page={list.pageInfo} />
    </section>
  );
}

function placesOf(grants: readonly GrantRowFragment[]): { accountId: string; reservationId: string }[] {
  const found = new Map<string, { accountId: string; reservationId: string }>();
  for (const { accountId, reservationId, state } of grants) {
    if (accountId && reservationId && state === 'ACTIVE') found.set(`${accountId}/${reservationId}`, { accountId, reservationId });
  }
  return [...found.values()];
}

function columnsFor(isRoot: boolean): Column<GrantRowFragment>[] {
  const columns: Column<GrantRowFragment>[] = [
    { name: 'Grant', cell: (grant) => <Named grant={grant} /> },
    { name: 'State', cell: ({ state }) => <State state={state} /> },
    { name: 'Tenant', cell: ({ tenantId }) => <TenantName id={tenantId} /> },
    { name: 'Term', cell: ({ startsAt, endsAt }) => <Term startsAt={startsAt} endsAt={endsAt} /> },
    { name: 'Running', cell: ({ running, slots }) => <>{running} <span className="soft">of {slots}</span></>, isNumber: true },
    { name: 'Utilisation', cell: (grant) => <Utilisation grant={grant} /> },
    { name: 'Idle slot-hours', cell: (grant) => slotHours(wasteOf(grant)), isNumber: true },
  ];
  return isRoot ? columns : columns.filter(({ name }) => name !== 'Tenant');
}

function Named({ grant }: { grant: GrantRowFragment }) {
  const { id, slots, reservationId, poolId, region } = grant;
  return (
    <span className="two-lines">
      <To to={['grants', id]}>{showSlots(slots)} on {reservationId ? lastPart(reservationId) : poolId}</To>
      <span className="soft small" title={id}>{shortId(id)} · {region}</span>
    </span>
  );
}

function NoGrants({ state }: { state: Chosen }) {
  const { isRoot } = useSession();
  if (state) return <Empty title={`No ${state.toLowerCase()} grants.`}><p>Choose another state above.</p></Empty>;
  if (!isRoot) return <Empty title="No grants yet."><p>Whoever runs the platform commits slots to you; they appear here at once.</p></Empty>;
  return (
    <Empty title="No grants yet." action={<To to={['capacity']} search={{ fit: '1' }} className="button button-main">Find room for a grant</To>}>
      <p>A grant commits slots of a capacity reservation to a tenant for a term.</p>
    </Empty>
  );
}
