import type { ReactNode } from 'react';
import type { Outcome } from '../graphql/live';
import { FailureNote } from './Note';
import { RefusalNote } from './RefusalNote';

/** What a change came to, unless it was done. */
export function NotDone({ outcome, children }: { outcome: Outcome<unknown> | null; children?: ReactNode }) {
  if (outcome?.kind === 'refused') return <RefusalNote refusal={outcome.refusal}>{children}</RefusalNote>;
  if (outcome?.kind === 'failed') return <FailureNote failure={outcome.failure} />;
  return null;
}
