/** Hooks over the link: queries that read again when something they show has changed, and open streams. */
import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { useCallback, useEffect, useRef, useState } from 'react';
import { useClient, useMutation, type AnyVariables } from 'urql';
import { useSession } from '../session/session';
import { Refresher, type Change } from './changes';
import { failureOf, type Failure } from './failures';
import { pause, waitFor } from './link';
import { follow, type Following } from './stream';

export interface Live<Data> {
  /** The latest that is known, also while a newer one is read or could not be read. */
  data: Data | undefined;
  failure: Failure | undefined;
  isReading: boolean;
  refresh: () => void;
}

/** Failures of the way there, which pass by themselves: what could not be read is read when they have. */
const PASSING = new Set(['UNREACHABLE', 'UNAVAILABLE', 'OVERLOADED']);

export interface LiveOptions<Data, Variables> {
  query: TypedDocumentNode<Data, Variables>;
  variables: Variables;
  /** Whether a change can concern what is shown. */
  affectedBy: (change: Change) => boolean;
  isPaused?: boolean;
}

export function useLiveQuery<Data, Variables extends AnyVariables>(
  { query, variables, affectedBy, isPaused = false }: LiveOptions<Data, Variables>,
): Live<Data> {
  const client = useClient();
  const { changes } = useSession();
  const key = JSON.stringify(variables);
  const [shown, setShown] = useState<{ key: string; data?: Data | undefined; failure?: Failure | undefined }>({ key });
  const [isReading, setIsReading] = useState(false);
  const latest = useRef({ variables, affectedBy });
  latest.current = { variables, affectedBy };
  const refresher = useRef<Refresher | null>(null);

  useEffect(() => {
    if (isPaused) return undefined;
    const current = { isOver: false, failures: 0 };
    const read = async () => {
      setIsReading(true);
      const asked = client.query(query, latest.current.variables, { requestPolicy: 'network-only' });
      const result = await asked.toPromise();
      if (current.isOver) return;
      const failure = result.error && !result.data ? failureOf(result.error) : undefined;
      setShown((old) => ({ key, data: result.data ?? (old.key === key ? old.data : undefined), failure }));
      setIsReading(false);
      current.failures = failure && PASSING.has(failure.code) ? current.failures + 1 : 0;
      if (current.failures > 0) void pause(waitFor(current.failures)).then(() => own.ask());
    };
    const own = new Refresher(read);
    refresher.current = own;
    const known = client.readQuery(query, latest.current.variables);
    if (known?.data) setShown({ key, data: known.data });
    own.begin();
    const leave = changes.listen((change) => latest.current.affectedBy(change) && own.ask());
    return () => {
      current.isOver = true;
      own.close();
      leave();
    };
  }, [client, changes, query, key, isPaused]);

  const refresh = useCallback(() => refresher.current?.ask(), []);
  const isOurs = shown.key === key;
  return { data: isOurs ? shown.data : undefined, failure: isOurs ? shown.failure : undefined, isReading, refresh };
}

/** A subscription as long as the component is there and `isPaused` is false. `key` says when it is another one. */
export function useStream<Data, Variables extends object>(
  spec: Following<Data, Variables>, key: string, isPaused = false,
): void {
  const { link } = useSession();
  const latest = useRef(spec);
  latest.current = spec;
  useEffect(() => {
    if (isPaused) return undefined;
    return follow(link, {
      ...latest.current,
      onValue: (value) => latest.current.onValue(value),
      onFailure: (why) => latest.current.onFailure?.(why),
    });
  }, [link, key, isPaused]);
}

export interface Refused {
  __typename: string;
  code: string;
  message: string;
  /** The input field that is wrong, and a stable word for why, if it is one. */
  field?: string;
  reason?: string;
}

/** What a change came to: the thing, a typed refusal, or a failure of the way there. */
export type Outcome<Done> =
  | { kind: 'done'; answer: Done }
  | { kind: 'refused'; refusal: Refused }
  | { kind: 'failed'; failure: Failure };

/** `pick` takes the mutation's field out of its data. */
export function useChange<Data, Variables extends AnyVariables, Answer extends object>(
  document: TypedDocumentNode<Data, Variables>, pick: (data: Data) => Answer | null | undefined,
): { change: (variables: Variables) => Promise<Outcome<Exclude<Answer, Refused>>>; isBusy: boolean } {
  const [{ fetching }, execute] = useMutation<Data, Variables>(document);
  const change = async (variables: Variables): Promise<Outcome<Exclude<Answer, Refused>>> => {
    const { data, error } = await execute(variables);
    const answer = data ? pick(data) : undefined;
    if (!answer) {
      const why = error ? failureOf(error) : { code: 'UNKNOWN', message: 'The server said nothing.', advice: '' };
      return { kind: 'failed', failure: why };
    }
    return isRefused(answer)
      ? { kind: 'refused', refusal: answer as unknown as Refused }
      : { kind: 'done', answer: answer as Exclude<Answer, Refused> };
  };
  return { change, isBusy: fetching };
}

export function isRefused<Answer extends object>(answer: Answer): answer is Extract<Answer, { code: string; message: string }> {
  return 'code' in answer && 'message' in answer;
}

/** For an idempotency key: one for each intent, kept while it is tried again. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is missing on plain http
  return `dashboard-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
