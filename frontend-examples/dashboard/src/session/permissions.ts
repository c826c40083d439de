/** What a key allows, by the server's own rule: hiding is a courtesy, the server decides. */

export type Permission =
  | 'compute:providers:manage'
  | 'compute:quotas:read'
  | 'compute:instances:read'
  | 'compute:instances:manage'
  | 'tenancy:read'
  | 'tenancy:manage'
  | 'reservations:release'
  | 'reservations:list'
  | 'balances:read'
  | 'budgets:read'
  | 'budgets:write'
  | 'policies:read'
  | 'policies:write'
  | 'webhooks:read'
  | 'webhooks:write'
  | 'events:read';

const EVERYTHING = '*';
const ADMINISTERED = ['budgets', 'policies', 'webhooks', 'events'];

/** Reading never gives writing, nor the other way round; `*` gives everything. */
export function allows(held: readonly string[], wanted: Permission): boolean {
  return givenBy(wanted).some((word) => held.includes(word));
}

function givenBy(wanted: Permission): string[] {
  const [context = '', right = ''] = split(wanted);
  if (context === 'compute' || context === 'tenancy') return [wanted, EVERYTHING];
  const wide = right === 'read' || right === 'list' ? 'admin:read' : 'admin:write';
  const own = ADMINISTERED.includes(context) ? [`admin:${wanted}`] : [];
  return [wanted, wide, ...own, EVERYTHING];
}

function split(wanted: Permission): string[] {
  const at = wanted.indexOf(':');
  return [wanted.slice(0, at), wanted.slice(at + 1)];
}
