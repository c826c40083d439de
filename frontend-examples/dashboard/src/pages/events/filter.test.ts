import { expect, it } from 'vitest';
import type { Happening } from '../../session/eventLog';
import { isShown, tieOf } from './filter';

const EVENT: Happening = {
  id: 'evt_1', type: 'budget.exhausted', tenantId: 'acme', occurredAt: 0, grantId: null, scope: 'tenant:acme/agent:planner',
  correlationId: null, requestId: 'req_7', traceId: 'trace_9', facts: {},
};
const ALL = { tenantId: null, kind: '', about: '' };

it('shows what every part of the filter lets through', () => {
  expect(isShown(EVENT, ALL)).toBe(true);
  expect(isShown(EVENT, { ...ALL, tenantId: 'other' })).toBe(false);
  expect(isShown(EVENT, { ...ALL, kind: 'reservation.' })).toBe(false);
  expect(isShown(EVENT, { tenantId: 'acme', kind: 'budget.', about: 'agent:planner' })).toBe(true);
  expect(isShown(EVENT, { ...ALL, about: 'req_8' })).toBe(false);
});

it('ties events by the widest thing that they share', () => {
  expect(tieOf(EVENT)).toBe('trace_9');
  expect(tieOf({ ...EVENT, correlationId: 'corr_1' })).toBe('corr_1');
  expect(tieOf({ ...EVENT, traceId: null })).toBe('req_7');
});
