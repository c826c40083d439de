/** Holds: money and tokens put aside before work begins, and what became of them. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { useSearchWord } from '../../app/router';
import { useChosenTenant } from '../../app/tenants';
import { Badge, type Tone } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Choices } from '../../design/Field';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Pager } from '../../design/Pager';
import { Table, type Column } from '../../design/Table';
import { exactAmount, showAmount } from '../../format/amounts';
import { shortId } from '../../format/names';
import { HoldListDocument, type BudgetReservationStatus, type HoldRowFragment } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { FollowHolds } from './FollowHolds';
import { ReleaseDialog } from './ReleaseDialog';

const STATES = [
  { value: '', label: 'All' },
  { value: 'ACTIVE', label: 'Held' },
  { value: 'COMMITTED', label: 'Committed' },
  { value: 'RELEASED', label: 'Released' },
  { value: 'EXPIRED', label: 'Expired' },
] as const;

type Chosen = '' | BudgetReservationStatus;

const TONES: Record<BudgetReservationStatus, Tone> = { ACTIVE: 'info', COMMITTED: 'good', RELEASED: 'neutral', EXPIRED: 'warn' };

export default function HoldsPage() {
  const tenantId = useChosenTenant();
  const [word, setWord] = useSearchWord('state');
  const state = STATES.find(({ value }) => value === word)?.value ?? '';
  return (
    <Page title="Budget reservations" lead="What is held before work begins, and what was charged after it.">
      <div className="toolbar"><Choices<Chosen> label="State" value={state} choices={STATES} onChoose={setWord} /></div>
      {tenantId ? <Holds key={tenantId} tenantId={tenantId} state={state} /> : <Empty title="Whose?"><p>Choose a tenant at the top: holds are kept tenant by tenant.</p></Empty>}
    </Page>
  );
}

function Holds({ tenantId, state }: { tenantId: string; state: Chosen }) {
  const { isRoot, can } = useSession();
  const [after] = useSearchWord('after');
  const [releasing, setReleasing] = useState<HoldRowFragment | null>(null);
  const owner = isRoot ? tenantId : null;
  const { data, failure, refresh } = useLiveQuery({
    query: HoldListDocument, variables: { tenantId: owner, status: state || null, after: after || null },
    affectedBy: (change) => change.kind === 'anything' || (change.kind === 'budget' && change.tenantId === tenantId),
  });
  const list = data?.budgetReservations;
  return (
    <>
      <FollowHolds tenantId={tenantId} owner={owner} />
      {!list && (failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="holds" />)}
      {list?.nodes.length === 0 && <NoHolds state={state} />}
      {list && list.nodes.length > 0 && (
        <section className="panel" aria-label="Budget reservations">
          {failure && <FailureNote failure={failure} onRetry={refresh} />}
          <Table caption="Holds, the newest first" columns={columnsFor(can('reservations:release') ? setReleasing : null)} rows={list.nodes} keyOf={({ id }) => id} />
          <Pager shown={list.nodes.length} total={list.totalCount} what="holds" page={list.pageInfo} />
        </section>
      )}
      {releasing && <ReleaseDialog hold={releasing} onClose={() => setReleasing(null)} />}
    </>
  );
}

function columnsFor(onRelease: ((hold: HoldRowFragment) => void) | null): Column<HoldRowFragment>[] {
  return [
    { name: 'Work', cell: ({ id, action }) => <span className="two-lines"><b>{action.name}</b><span className="soft small" title={id}>{action.kind} · {shortId(id)}</span></span> },
    { name: 'State', cell: ({ status }) => <Badge tone={TONES[status]}>{status === 'ACTIVE' ? 'held' : status.toLowerCase()}</Badge> },
    { name: 'Scope', cell: ({ scope }) => scope },
    { name: 'Held', cell: ({ reserved, unit }) => <span title={exactAmount(reserved, unit)}>{showAmount(reserved, unit)}</span>, isNumber: true },
    { name: 'Charged', cell: ({ charged, unit }) => (charged === null ? <span className="soft">–</span> : <span title={exactAmount(charged, unit)}>{showAmount(charged, unit)}</span>), isNumber: true },
    { name: 'Made', cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
    { name: 'Until', cell: ({ expiresAt, finalizedAt }) => <Instant at={finalizedAt ?? expiresAt} /> },
    {
      name: 'Actions', isNumber: true,
      cell: (hold) => onRelease && hold.status === 'ACTIVE' && (
        <span className="row-actions"><Button look="danger" onClick={() => onRelease(hold)}>Release…<span className="hidden-text"> {hold.id}</span></Button></span>
      ),
    },
  ];
}

function NoHolds({ state }: { state: Chosen }) {
  return state
    ? <Empty title="None in this state."><p>Choose another one above.</p></Empty>
    : <Empty title="Nothing was ever held."><p>Agents hold before they work, with <code>reserveBudget</code> or <code>POST /v1/reservations</code>; their holds appear here at once.</p></Empty>;
}
