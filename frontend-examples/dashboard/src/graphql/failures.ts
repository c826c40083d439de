/** What went wrong outside of a typed answer, in words that say what to do. */
import type { CombinedError } from 'urql';

export interface Failure {
  code: string;
  message: string;
  /** What the reader can do about it. */
  advice: string;
  requestId?: string | undefined;
}

const ADVICE: Record<string, string> = {
  UNREACHABLE: 'Check that Earmark runs and that this page can reach it. The page goes on by itself when it answers.',
  UNAUTHENTICATED: 'Sign in with a key that is valid.',
  ACCESS_DENIED: 'Sign in with a key that has this permission, or ask whoever manages the keys.',
  UNAVAILABLE: 'The server is up but its database is not, or it is just closing. Try again in a moment.',
  OVERLOADED: 'The server has too much to do right now. Try again in a moment.',
  INVALID_INPUT: 'Correct what is named, and try again.',
  TOO_MANY_SUBSCRIPTIONS: 'Close other tabs of this dashboard, or wait a moment.',
  CURSOR_EXPIRED: 'Some events are older than what is kept. What is shown goes on from the oldest that is kept.',
};
const OTHERWISE = 'Try again. If it stays so, look in the server’s log under the request id.';

interface ErrorLike {
  message: string;
  extensions?: Record<string, unknown> | undefined;
}

export function failureOf(error: CombinedError): Failure {
  const [first] = error.graphQLErrors;
  if (first) return described(first);
  const response = error.response as Response | undefined;
  if (response?.status === 401) return failure('UNAUTHENTICATED', 'This API key is not valid, or no longer.');
  if (response?.status === 503) return failure('UNAVAILABLE', 'The server cannot answer right now.');
  if (response?.status) return failure('HTTP_ERROR', `The server answered with status ${response.status}.`);
  return failure('UNREACHABLE', 'The server does not answer.');
}

export function described(error: ErrorLike): Failure {
  const code = text(error.extensions?.['code']) ?? 'UNKNOWN';
  return failure(code, error.message, text(error.extensions?.['requestId']));
}

export function failure(code: string, message: string, requestId?: string): Failure {
  return { code, message, advice: ADVICE[code] ?? OTHERWISE, requestId };
}

export function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
