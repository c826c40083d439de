/** Who is signed in, over which link, and what the key allows. */
import { createContext, useContext } from 'react';
import type { Changes } from '../graphql/changes';
import type { ViewerQuery } from '../graphql/generated';
import type { Link } from '../graphql/link';
import type { EventLog } from './eventLog';
import type { Permission } from './permissions';

export interface Session {
  link: Link;
  changes: Changes;
  events: EventLog;
  viewer: ViewerQuery['viewer'];
  /** Whether the key is one of the platform itself, which sees every tenant. */
  isRoot: boolean;
  tenantId: string;
  can: (permission: Permission) => boolean;
  signOut: (why?: string) => void;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error('used outside of a session');
  return session;
}
