/** The streams of events of this session: one of each for all pages. They feed them with changes and keep the latest. */
import type { BudgetEventsSubscription, GrantEventsSubscription } from '../graphql/generated';
import { BudgetEventsDocument, GrantEventsDocument } from '../graphql/generated';
import type { Change, Changes } from '../graphql/changes';
import type { Failure } from '../graphql/failures';
import type { Link } from '../graphql/link';
import { follow } from '../graphql/stream';

/** An event of whatever stream, as far as a list shows it. */
export interface Happening {
  id: string;
  type: string;
  tenantId: string;
  occurredAt: number;
  grantId: string | null;
  scope: string | null;
  correlationId: string | null;
  requestId: string | null;
  traceId: string | null;
  /** Everything that was published with it. */
  facts: unknown;
}

/** Events that are kept for looking back; the server keeps all of them for days. */
const KEPT_MOST = 1_000;

export interface Logged {
  /** Oldest first. */
  events: readonly Happening[];
  failure: Failure | null;
}

export class EventLog {
  private logged: Logged = { events: [], failure: null };
  private readonly listeners = new Set<() => void>();
  private readonly leaves: (() => void)[] = [];

  constructor(private readonly link: Link, private readonly changes: Changes, private readonly all: boolean) {}

  /** From the cursor on, which was asked for before anything was read: nothing can fall between the two. */
  start(after: string | null, wanted: { grants: boolean; budgets: boolean }): void {
    const shared = {
      variables: { all: this.all }, after,
      onFailure: (failure: Failure) => this.become({ ...this.logged, failure }),
    };
    if (wanted.grants) {
      this.leaves.push(follow(this.link, {
        ...shared, document: GrantEventsDocument,
        cursorOf: ({ grantEvents }) => grantEvents.cursor,
        onValue: ({ grantEvents }) => this.take(ofGrant(grantEvents), 'grant'),
      }));
    }
    if (wanted.budgets) {
      this.leaves.push(follow(this.link, {
        ...shared, document: BudgetEventsDocument,
        cursorOf: ({ budgetEvents }) => budgetEvents.cursor,
        onValue: ({ budgetEvents }) => this.take(ofBudget(budgetEvents), 'budget'),
      }));
    }
  }

  stop(): void {
    for (const leave of this.leaves) leave();
    this.listeners.clear();
  }

  readonly state = (): Logged => this.logged;

  readonly listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private take(event: Happening, stream: 'grant' | 'budget'): void {
    this.become({ ...this.logged, events: [...this.logged.events, event].slice(-KEPT_MOST) });
    this.changes.tell(stream === 'grant' ? { kind: 'grant', tenantId: event.tenantId, grantId: event.grantId } : changeOf(event));
  }

  private become(logged: Logged): void {
    this.logged = logged;
    for (const listener of this.listeners) listener();
  }
}

function changeOf({ type, tenantId, scope }: Happening): Change {
  if (type.startsWith('tenant.') || type.startsWith('api_key.')) return { kind: 'tenancy' };
  if (type.startsWith('webhook.') || type.startsWith('system.')) return { kind: 'webhook' };
  return { kind: 'budget', tenantId, scope };
}

function ofGrant(event: GrantEventsSubscription['grantEvents']): Happening {
  const { id, type, tenantId, occurredAt, grantId, requestId, traceId, payload } = event;
  return { id, type, tenantId, occurredAt, grantId, scope: null, correlationId: null, requestId, traceId, facts: payload };
}

function ofBudget(event: BudgetEventsSubscription['budgetEvents']): Happening {
  const { id, type, tenantId, occurredAt, scope, correlationId, requestId, traceId, data } = event;
  return { id, type, tenantId, occurredAt, grantId: null, scope, correlationId, requestId, traceId, facts: data };
}
