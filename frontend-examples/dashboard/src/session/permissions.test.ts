import { expect, it } from 'vitest';
import { allows } from './permissions';

it('follows the rule of the server', () => {
  expect(allows(['*'], 'compute:providers:manage')).toBe(true);
  expect(allows(['compute:quotas:read'], 'compute:quotas:read')).toBe(true);
  expect(allows(['admin:read'], 'compute:quotas:read')).toBe(false);
  expect(allows(['admin:read'], 'budgets:read')).toBe(true);
  expect(allows(['admin:read'], 'budgets:write')).toBe(false);
  expect(allows(['admin:budgets:write'], 'budgets:write')).toBe(true);
  expect(allows(['admin:write'], 'reservations:release')).toBe(true);
  expect(allows([], 'tenancy:read')).toBe(false);
});
