import { useCallback, useEffect, useState } from 'react';
import type { Failure } from '../graphql/failures';
import { waitFor } from '../graphql/link';
import { keepKey, keptKey } from './keep';
import { closeSession, openSession } from './open';
import type { Session } from './session';

export type SignedIn =
  | { kind: 'out'; why?: string | undefined; failure?: Failure | undefined }
  | { kind: 'opening' }
  | { kind: 'in'; session: Session };

/** A key of this tab signs in by itself, and goes on trying while the server is away. */
export function useSignedIn(): { state: SignedIn; signIn: (key: string) => void } {
  const [key, setKey] = useState(keptKey);
  const [attempt, setAttempt] = useState(0);
  const [state, setState] = useState<SignedIn>(() => ({ kind: keptKey() ? 'opening' : 'out' }));

  const signOut = useCallback((why?: string) => {
    keepKey(null);
    setKey(null);
    setState({ kind: 'out', why });
  }, []);

  const signIn = useCallback((given: string) => {
    keepKey(given);
    setState({ kind: 'opening' });
    setKey(given);
    setAttempt((count) => count + 1);
  }, []);

  useEffect(() => {
    if (!key) return undefined;
    let isOver = false;
    let opened: Session | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    void openSession(key, signOut).then(({ session, failure }) => {
      if (isOver) {
        if (session) closeSession(session);
      } else if (session) {
        opened = session;
        setState({ kind: 'in', session });
      } else {
        const isRejected = failure.code === 'UNAUTHENTICATED';
        if (isRejected) keepKey(null);
        else timer = setTimeout(() => setAttempt((count) => count + 1), waitFor(3));
        setState({ kind: 'out', failure });
      }
    });
    return () => {
      isOver = true;
      clearTimeout(timer);
      if (opened) closeSession(opened);
    };
  }, [key, attempt, signOut]);

  return { state, signIn };
}
