import type { ReactNode } from 'react';
import type { Refused } from '../graphql/live';
import { explain } from '../graphql/refusals';
import { Note } from './Note';

interface RefusalNoteProps {
  refusal: Refused;
  children?: ReactNode;
}

/** The server understood and said no: why, what can be done, and the code that a program would see. */
export function RefusalNote({ refusal, children }: RefusalNoteProps) {
  const { title, advice, field } = explain(refusal);
  return (
    <Note tone="bad" title={title}>
      <p>{advice}</p>
      {children}
      <p className="soft small">
        <code>{refusal.code}</code>
        {field && <> · field “{field}”</>}
        {refusal.reason && <> · <code>{refusal.reason}</code></>}
      </p>
    </Note>
  );
}
