/** One webhook: how it is, and what it was sent. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { go, To } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { useNotice } from '../../app/notices';
import { Badge, type Tone } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Confirm } from '../../design/Confirm';
import { Fact, Facts } from '../../design/Facts';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Note, Waiting } from '../../design/Note';
import { NotDone } from '../../design/Outcome';
import { Table, type Column } from '../../design/Table';
import {
  DeleteWebhookDocument, PauseWebhookDocument, ResumeWebhookDocument, TestWebhookDocument, WebhookDetailDocument,
  type WebhookDeliveryStatus, type WebhookDetailQuery,
} from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { useChange, useLiveQuery, type Outcome } from '../../graphql/live';
import { useSession } from '../../session/session';
import { Status, subjectsOf } from './Status';

type Detail = NonNullable<WebhookDetailQuery['webhook']>;
type Delivery = NonNullable<Detail['deliveries']>['nodes'][number];

export default function WebhookPage({ id }: { id: string }) {
  const { data, failure, refresh } = useLiveQuery({
    query: WebhookDetailDocument, variables: { id },
    // What happens may be delivered: each event is a reason to look again.
    affectedBy: () => true,
  });
  const webhook = data?.webhook;
  if (webhook) return <Known webhook={webhook} onRefresh={refresh} />;
  return (
    <Page title="Webhook">
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {!failure && !data && <Waiting what="the webhook" />}
      {data && <Empty title="There is no such webhook." action={<To to={['webhooks']} className="button button-plain">All webhooks</To>} />}
    </Page>
  );
}

function Known({ webhook, onRefresh }: { webhook: Detail; onRefresh: () => void }) {
  const { can } = useSession();
  const deliveries = webhook.deliveries?.nodes ?? [];
  return (
    <Page
      title={webhook.name || webhook.url} lead={<><Status webhook={webhook} /> {webhook.name && webhook.url}</>}
      actions={can('webhooks:write') && <Actions webhook={webhook} />}
    >
      {webhook.status === 'DISABLED' && <Note tone="bad" title="It was disabled, after too many deliveries in a row were given up."><p>Mend the receiver, test it, then resume. What happened meanwhile was not queued; root can replay it.</p></Note>}
      <section className="panel" aria-label="About">
        <Facts>
          <Fact name="Whose events">{webhook.tenantId === '__system__' ? 'everybody’s' : <TenantName id={webhook.tenantId} />}</Fact>
          <Fact name="Told of">{subjectsOf(webhook)}</Fact>
          {webhook.scopeFilter && <Fact name="Scopes">{webhook.scopeFilter}</Fact>}
          <Fact name="Disabled after">{webhook.disableAfterFailures} given up in a row</Fact>
          <Fact name="Made"><Instant at={webhook.createdAt} relative /></Fact>
          {webhook.lastFailureAt !== null && <Fact name="Last failure"><Instant at={webhook.lastFailureAt} relative /></Fact>}
        </Facts>
      </section>
      <section className="panel" aria-labelledby="deliveries">
        <header className="panel-head"><h2 id="deliveries">Deliveries</h2><span className="push"><Button onClick={onRefresh}>Look again</Button></span></header>
        {deliveries.length > 0
          ? <Table caption="Deliveries, the newest first" columns={DELIVERIES} rows={deliveries} keyOf={({ id }) => id} />
          : <p className="soft">Nothing was sent yet.</p>}
      </section>
    </Page>
  );
}

const TONES: Record<WebhookDeliveryStatus, Tone> = { PENDING: 'neutral', RETRYING: 'warn', SUCCESS: 'good', FAILED: 'bad' };

const DELIVERIES: readonly Column<Delivery>[] = [
  { name: 'Event', cell: ({ eventType, eventId }) => <span title={eventId}>{eventType}</span> },
  { name: 'State', cell: ({ status }) => <Badge tone={TONES[status]}>{status.toLowerCase()}</Badge> },
  { name: 'Attempts', cell: ({ attempts }) => attempts, isNumber: true },
  { name: 'Answer', cell: ({ responseStatus, responseTimeMs, error }) => <span className="small">{responseStatus ?? ''} {responseTimeMs !== null && <span className="soft">in {responseTimeMs} ms</span>} {error}</span> },
  { name: 'Queued', cell: ({ queuedAt }) => <Instant at={queuedAt} relative /> },
  { name: 'Next attempt', cell: ({ nextAttemptAt }) => (nextAttemptAt === null ? '' : <Instant at={nextAttemptAt} relative />) },
];

function Actions({ webhook }: { webhook: Detail }) {
  const { changes } = useSession();
  const notice = useNotice();
  const [isDeleting, setDeleting] = useState(false);
  const changed = ({ status }: { status: string }) => {
    notice(`The webhook is ${status.toLowerCase()}.`);
    changes.tell({ kind: 'webhook' });
  };
  const pause = useIntent(PauseWebhookDocument, ({ pauseWebhook }) => pauseWebhook, changed);
  const resume = useIntent(ResumeWebhookDocument, ({ resumeWebhook }) => resumeWebhook, changed);
  const { ask, isBusy, outcome } = webhook.status === 'ACTIVE' ? pause : resume;
  return (
    <>
      <NotDone outcome={outcome} />
      <Test webhookId={webhook.id} />
      <Button isBusy={isBusy} onClick={() => ask({ webhookId: webhook.id })}>{webhook.status === 'ACTIVE' ? 'Pause' : 'Resume'}</Button>
      <Button look="danger" onClick={() => setDeleting(true)}>Delete…</Button>
      {isDeleting && <DeleteDialog webhook={webhook} onClose={() => setDeleting(false)} />}
    </>
  );
}

function Test({ webhookId }: { webhookId: string }) {
  const notice = useNotice();
  const { change, isBusy } = useChange(TestWebhookDocument, ({ testWebhook }) => testWebhook);
  const [outcome, setOutcome] = useState<Outcome<unknown> | null>(null);
  const test = async () => {
    const came = await change({ input: { webhookId } });
    setOutcome(came.kind === 'done' ? null : came);
    if (came.kind === 'done') notice(came.answer.succeeded ? `It answered ${came.answer.responseStatus} in ${came.answer.responseTimeMs} ms.` : `It did not take the test: ${came.answer.error}`);
  };
  return (
    <>
      <NotDone outcome={outcome} />
      <Button isBusy={isBusy} onClick={() => void test()}>Send a test</Button>
    </>
  );
}

function DeleteDialog({ webhook, onClose }: { webhook: Detail; onClose: () => void }) {
  const { changes } = useSession();
  const { outcome, ask, isBusy } = useIntent(DeleteWebhookDocument, ({ deleteWebhook }) => deleteWebhook, () => {
    changes.tell({ kind: 'webhook' });
    go(['webhooks']);
  });
  return (
    <Confirm title="Delete this webhook?" action="Delete it" isDanger isBusy={isBusy} outcome={outcome} onClose={onClose} onConfirm={() => ask({ webhookId: webhook.id })}>
      <p><code>{webhook.url}</code> is told nothing any more, and what waits to be sent is dropped. This is for good.</p>
    </Confirm>
  );
}
