/** From a key to a session: the key is tried, the end of the event stream is noted, then everything is read. */
import { Changes } from '../graphql/changes';
import { failureOf, type Failure } from '../graphql/failures';
import { StreamEndDocument, ViewerDocument } from '../graphql/generated';
import { Link } from '../graphql/link';
import { EventLog } from './eventLog';
import { allows } from './permissions';
import type { Session } from './session';

export type Opened = { session: Session; failure?: never } | { session?: never; failure: Failure };

export async function openSession(key: string, signOut: (why?: string) => void): Promise<Opened> {
  // A key that is not taken from the start is a failure of signing in; one that is revoked later signs out.
  let isIn = false;
  const link = new Link(key, () => isIn && signOut('The server no longer takes this key. Sign in with another one.'));
  const { data, error } = await link.client.query(ViewerDocument, {}).toPromise();
  if (!data) {
    link.close();
    const unknown = { code: 'UNKNOWN', message: 'The server said nothing.', advice: 'Try again.' };
    return { failure: error ? failureOf(error) : unknown };
  }
  isIn = true;
  const { viewer } = data;
  const isRoot = viewer.tenant.isRoot;
  const changes = new Changes();
  const events = new EventLog(link, changes, isRoot);
  const can: Session['can'] = (permission) => allows(viewer.apiKey.permissions, permission);
  const session = { link, changes, events, viewer, isRoot, tenantId: viewer.tenant.id, can, signOut };
  const wanted = { grants: can('compute:quotas:read'), budgets: can('events:read') };
  if (wanted.grants || wanted.budgets) {
    const end = await link.client.query(StreamEndDocument, { all: isRoot }).toPromise();
    events.start(end.data?.eventsCursor ?? null, wanted);
  }
  tellWhenBack(link, changes);
  return { session };
}

/** A socket that was lost and is back: what has no resumable stream of its own is read again. */
function tellWhenBack(link: Link, changes: Changes): void {
  let wasLost = false;
  link.listen(() => {
    const state = link.state();
    if (state === 'live' && wasLost) changes.tell({ kind: 'anything' });
    if (state === 'lost' || state === 'live') wasLost = state === 'lost';
  });
}

export function closeSession(session: Session): void {
  session.events.stop();
  session.link.close();
}
