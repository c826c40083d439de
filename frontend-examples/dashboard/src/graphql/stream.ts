/** A subscription that outlives its socket: it goes on after the last value that was handed over, once and in order. */
import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { getOperationName, stringifyDocument } from 'urql';
import { described, failure, text, type Failure } from './failures';
import { pause, waitFor, type Link } from './link';

export interface Following<Data, Variables> {
  document: TypedDocumentNode<Data, Variables>;
  variables: Variables;
  onValue: (value: Data) => void;
  /** For a stream that can be resumed: the cursor of a value. `after` is then kept up to date. */
  cursorOf?: (value: Data) => string;
  after?: string | null;
  /** Values were missed for good, or the server refuses the stream. */
  onFailure?: (failure: Failure) => void;
}

interface StreamError {
  message: string;
  extensions?: Record<string, unknown> | undefined;
}

/** No waiting helps against these. */
const FINAL = new Set(['ACCESS_DENIED', 'NOT_FOUND', 'INVALID_DOCUMENT', 'UNAUTHENTICATED']);
/** A cursor that is no longer good: too old, or of another database. */
const MISSED = new Set(['CURSOR_EXPIRED', 'INVALID_INPUT']);

/** Follows until the returned function is called. */
export function follow<Data, Variables extends object>(link: Link, spec: Following<Data, Variables>): () => void {
  const { document, cursorOf } = spec;
  let cursor = spec.after ?? null;
  let failures = 0;
  let isOver = false;
  let leave = () => {};

  // graphql-ws asks again with the same payload when a socket was lost: it is written out each time, so what it
  // reads here is the cursor of that moment.
  const variables = (cursorOf
    ? Object.defineProperty({ ...spec.variables }, 'after', { enumerable: true, get: () => cursor })
    : { ...spec.variables }) as Record<string, unknown>;
  const query = stringifyDocument(document);
  const operationName = getOperationName(document as Parameters<typeof getOperationName>[0]);

  const begin = () => {
    let isOpen = true;
    const interrupt = (error?: StreamError) => {
      if (!isOpen) return;
      isOpen = false;
      leave();
      const wait = isOver ? null : takeNote(error);
      if (wait !== null) void pause(wait).then(() => isOver || begin());
    };
    leave = link.socket.subscribe<Data>({ query, operationName, variables }, {
      next: ({ data, errors }) => {
        if (errors?.[0]) return interrupt(errors[0]);
        if (!data || !isOpen) return;
        failures = 0;
        if (cursorOf) cursor = cursorOf(data);
        spec.onValue(data);
      },
      error: (reason) => interrupt(Array.isArray(reason) ? reason[0] : undefined),
      complete: () => interrupt(),
    });
  };

  /** How long to wait before the next attempt; null when there is none. */
  const takeNote = (error?: StreamError): number | null => {
    const why = error ? described(error) : failure('UNREACHABLE', 'The stream was interrupted.');
    if (why.code === 'UNAUTHENTICATED') link.reject();
    if (FINAL.has(why.code) || MISSED.has(why.code)) spec.onFailure?.(why);
    if (FINAL.has(why.code)) return null;
    if (cursorOf && MISSED.has(why.code)) cursor = text(error?.extensions?.['cursor']) ?? null;
    return waitFor(failures++);
  };

  begin();
  return () => {
    isOver = true;
    leave();
  };
}
