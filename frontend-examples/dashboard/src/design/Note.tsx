/** What to read when there is nothing to show, when something failed, and when the answer is no. */
import type { ReactNode } from 'react';
import { sentence, words } from '../format/names';
import type { Failure } from '../graphql/failures';
import { Button } from './Button';

export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children && <div className="empty-text">{children}</div>}
      {action}
    </div>
  );
}

export function FailureNote({ failure, onRetry }: { failure: Failure; onRetry?: () => void }) {
  return (
    <Note tone="bad" title={sentence(failure.message)} action={onRetry && <Button onClick={onRetry}>Try again</Button>}>
      <p>{failure.advice}</p>
      <p className="soft small">
        <code>{failure.code}</code>{failure.requestId && <> · request <code>{failure.requestId}</code></>}
      </p>
    </Note>
  );
}

interface NoteProps {
  tone: 'info' | 'good' | 'warn' | 'bad';
  title: string;
  children?: ReactNode;
  action?: ReactNode;
}

/** Announced when it appears; what is wrong interrupts, what is only said does not. */
export function Note({ tone, title, children, action }: NoteProps) {
  return (
    <div className={`note note-${tone}`} role={tone === 'bad' ? 'alert' : 'status'}>
      <p className="note-title">{title}</p>
      {children}
      {action && <div className="note-action">{action}</div>}
    </div>
  );
}

export function Waiting({ what }: { what: string }) {
  return <p className="waiting" role="status">Reading {what}…</p>;
}

export function codeWords(code: string): string {
  return sentence(words(code)).slice(0, -1);
}
