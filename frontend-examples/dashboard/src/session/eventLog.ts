/** The stream of grant events of this session: one for all pages. It feeds them with changes and keeps the latest. */
import type { GrantEventsSubscription } from '../graphql/generated';
import { GrantEventsDocument } from '../graphql/generated';
import type { Changes } from '../graphql/changes';
import type { Failure } from '../graphql/failures';
import type { Link } from '../graphql/link';
import { follow } from '../graphql/stream';

export type GrantEvent = GrantEventsSubscription['grantEvents'];

/** Events that are kept for looking back; the server keeps all of them for days. */
const KEPT_MOST = 1_000;

export interface Logged {
  /** Oldest first. */
  events: readonly GrantEvent[];
  failure: Failure | null;
}

export class EventLog {
  private logged: Logged = { events: [], failure: null };
  private readonly listeners = new Set<() => void>();
  private leave: (() => void) | null = null;

  constructor(private readonly link: Link, private readonly changes: Changes, private readonly all: boolean) {}

  /** From the cursor on, which was asked for before anything was read: nothing can fall between the two. */
  start(after: string | null): void {
    this.leave = follow(this.link, {
      document: GrantEventsDocument,
      variables: { all: this.all },
      after,
      cursorOf: ({ grantEvents }) => grantEvents.cursor,
      onValue: ({ grantEvents }) => this.take(grantEvents),
      onFailure: (failure) => this.become({ ...this.logged, failure }),
    });
  }

  stop(): void {
    this.leave?.();
    this.listeners.clear();
  }

  readonly state = (): Logged => this.logged;

  readonly listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private take(event: GrantEvent): void {
    this.become({ ...this.logged, events: [...this.logged.events, event].slice(-KEPT_MOST) });
    this.changes.tell({ kind: 'grant', tenantId: event.tenantId, grantId: event.grantId ?? null });
  }

  private become(logged: Logged): void {
    this.logged = logged;
    for (const listener of this.listeners) listener();
  }
}
