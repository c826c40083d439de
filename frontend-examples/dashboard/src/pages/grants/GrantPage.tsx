/** One grant: what was promised, what runs, what it was used for, and what happened to it. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { To } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { Button } from '../../design/Button';
import { Copy } from '../../design/Copy';
import { Fact, Facts, Figure } from '../../design/Facts';
import { Instant, Term } from '../../design/Instant';
import { Empty, FailureNote, Note, Waiting } from '../../design/Note';
import { lastPart, shortId } from '../../format/names';
import { showShare, showSlotHours, showSlots, slotHours } from '../../format/slots';
import { shareOf } from '../../format/amounts';
import { showDuration } from '../../format/time';
import { GrantDetailDocument, type GrantDetailQuery } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { AmendDialog, EndDialog } from './GrantDialogs';
import { Events, Instances } from './GrantLists';
import { FollowCapacity } from './FollowCapacity';
import { State } from './GrantState';
import { UsageChart } from './UsageChart';
import { wasteOf } from './Utilisation';

export type Detail = NonNullable<GrantDetailQuery['grant']>;

export default function GrantPage({ id }: { id: string }) {
  const { data, failure, refresh } = useLiveQuery({
    query: GrantDetailDocument,
    variables: { id },
    affectedBy: (change) => change.kind === 'anything' || change.kind === 'capacity' || (change.kind === 'grant' && change.grantId === id),
  });
  const grant = data?.grant;
  if (grant) return <Known grant={grant} />;
  return (
    <Page title={`Grant ${shortId(id)}`}>
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {!failure && !data && <Waiting what="the grant" />}
      {data && <Empty title="There is no such grant." action={<To to={['grants']} className="button button-plain">All grants</To>}><p>It may be another tenant’s, or long gone.</p></Empty>}
    </Page>
  );
}

function Known({ grant }: { grant: Detail }) {
  const { isRoot } = useSession();
  const place = grant.reservationId ? lastPart(grant.reservationId) : grant.poolId;
  return (
    <Page
      title={`${showSlots(grant.slots)} on ${place}`}
      lead={<><State state={grant.state} /> <Term startsAt={grant.startsAt} endsAt={grant.endsAt} /> <span className="soft">· {showDuration(grant.endsAt - grant.startsAt)}</span></>}
      actions={isRoot && <Actions grant={grant} />}
    >
      {grant.accountId && grant.reservationId && <FollowCapacity accountId={grant.accountId} reservationId={grant.reservationId} />}
      <Advice grant={grant} />
      <Figures grant={grant} />
      <About grant={grant} />
      <UsageChart grant={grant} />
      <Instances grant={grant} />
      <Events grant={grant} />
    </Page>
  );
}

function Actions({ grant }: { grant: Detail }) {
  const [open, setOpen] = useState<'amend' | 'end' | null>(null);
  if (grant.state !== 'ACTIVE' && grant.state !== 'SCHEDULED') return null;
  const close = () => setOpen(null);
  return (
    <>
      <Button onClick={() => setOpen('amend')}>Amend…</Button>
      <Button look="danger" onClick={() => setOpen('end')}>{grant.state === 'ACTIVE' ? 'End now…' : 'Cancel…'}</Button>
      {open === 'amend' && <AmendDialog grant={grant} onClose={close} />}
      {open === 'end' && <EndDialog grant={grant} onClose={close} />}
    </>
  );
}

function Advice({ grant }: { grant: Detail }) {
  if (grant.orphaned) {
    return <Note tone="warn" title="It serves nobody: its project was deleted."><p>Its slots stay committed and paid for. End it, or leave it until its term is over.</p></Note>;
  }
  if (grant.endedReason) {
    return <Note tone="warn" title="It ended early: its capacity reservation is gone."><p>What ran in it goes on, billed on demand.</p></Note>;
  }
  if (grant.state === 'ACTIVE' && grant.idle > 0) {
    return <Note tone="info" title={`${showSlots(grant.idle)} idle right now.`}><p>They are paid for all the same: start instances of the reservation’s flavor, or amend the grant to fewer slots.</p></Note>;
  }
  return null;
}

function Figures({ grant }: { grant: Detail }) {
  const share = shareOf(grant.usedSlotMs, grant.committedSlotMs);
  const waste = wasteOf(grant);
  return (
    <dl className="figures">
      <Figure name="Slots" value={grant.slots} note={grant.held ? `${grant.held} held` : undefined} />
      <Figure name="Running" value={grant.running} note={grant.stopped ? `${grant.stopped} stopped` : undefined} />
      <Figure name="Idle now" value={grant.idle} tone={grant.idle > 0 ? 'warn' : undefined} />
      <Figure name="Utilisation" value={grant.committedSlotMs === '0' ? '–' : showShare(share)} note={showSlotHours(grant.usedSlotMs)} />
      <Figure name="Idle waste" value={slotHours(waste)} note="slot-hours" />
    </dl>
  );
}

function About({ grant }: { grant: Detail }) {
  return (
    <section className="panel" aria-label="About">
      <Facts>
        <Fact name="Tenant"><TenantName id={grant.tenantId} /></Fact>
        <Fact name="Project">{grant.projectId ? <code title={grant.projectId}>{shortId(grant.projectId)}</code> : 'any of the tenant’s'}</Fact>
        <Fact name="Pool">{grant.poolId} · {grant.region} · {grant.provider}</Fact>
        {grant.reservationId && <Fact name="Reservation"><To to={['capacity']}>{lastPart(grant.reservationId)}</To></Fact>}
        <Fact name="Made"><Instant at={grant.createdAt} relative /></Fact>
        {grant.cancelledAt && <Fact name="Cancelled"><Instant at={grant.cancelledAt} relative /></Fact>}
        <Fact name="Id"><code>{grant.id}</code> <Copy text={grant.id} /></Fact>
      </Facts>
    </section>
  );
}
