/** A change that somebody asks for: sent again it keeps its key, so that a lost answer makes nothing twice. */
import type { TypedDocumentNode } from '@graphql-typed-document-node/core';
import { useRef, useState } from 'react';
import { newKey, useChange, type Outcome, type Refused } from './live';

export interface Intent<Input> {
  /** What the last attempt came to; null once something else is asked for. */
  outcome: Outcome<unknown> | null;
  refusal: Refused | null;
  ask: (input: Omit<Input, 'idempotencyKey'>) => void;
  isBusy: boolean;
  /** Forgets what the last attempt came to. */
  clear: () => void;
}

/** `pick` takes the mutation's field out of its data; `onDone` gets what was made of it. */
export function useIntent<Data, Input extends object, Answer extends object>(
  document: TypedDocumentNode<Data, { input: Input }>,
  pick: (data: Data) => Answer | null | undefined,
  onDone: (answer: Exclude<Answer, Refused>) => void,
): Intent<Input> {
  const { change, isBusy } = useChange(document, pick);
  const [outcome, setOutcome] = useState<Outcome<unknown> | null>(null);
  const last = useRef({ request: '', key: '' });
  const ask = async (input: Omit<Input, 'idempotencyKey'>) => {
    const request = JSON.stringify(input);
    if (last.current.request !== request) last.current = { request, key: newKey() };
    const came = await change({ input: { ...input, idempotencyKey: last.current.key } as unknown as Input });
    setOutcome(came.kind === 'done' ? null : came);
    if (came.kind !== 'done') return;
    last.current = { request: '', key: '' };
    onDone(came.answer);
  };
  return {
    outcome,
    refusal: outcome?.kind === 'refused' ? outcome.refusal : null,
    ask: (input) => void ask(input),
    isBusy,
    clear: () => setOutcome(null),
  };
}
