/** Budgets of one tenant as the tree that their scopes make. */
import type { BudgetRowFragment } from '../../graphql/generated';

export interface Branch {
  budget: BudgetRowFragment;
  /** How many budgeted scopes are above it. */
  depth: number;
  /** The part of its scope below the nearest one that is budgeted too. */
  label: string;
}

/** Each below what it is part of, siblings by name; a scope with several units stands once for each. */
export function inTree(budgets: readonly BudgetRowFragment[]): Branch[] {
  const sorted = [...budgets].sort((one, other) => compare(keyOf(one), keyOf(other)) || compare(one.unit, other.unit));
  const above: { key: string; scope: string }[] = [];
  return sorted.map((budget) => {
    const key = keyOf(budget);
    while (above.length > 0 && !isBelow(key, above.at(-1)?.key ?? '')) above.pop();
    const parent = above.at(-1);
    const isTwin = parent?.key === key;
    const over = isTwin ? above.at(-2) : parent;
    const label = over ? budget.scope.slice(over.scope.length + 1) : budget.scope;
    const depth = over ? above.indexOf(over) + 1 : 0;
    if (!isTwin) above.push({ key, scope: budget.scope });
    return { budget, depth, label };
  });
}

/** Scopes of a tenant sort together, and what is below one comes right after it. */
function keyOf({ tenantId, scope }: BudgetRowFragment): string {
  return `${tenantId}\u0000${scope.replaceAll('/', '\u0001')}`;
}

function isBelow(key: string, above: string): boolean {
  return key === above || key.startsWith(`${above}\u0001`);
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}

/** Shares of what the budget may come to: spent, held, still there; debt lies beyond what was allocated. */
export function sharesOf({ allocated, spent, reserved, debt }: BudgetRowFragment): { look: string; share: number }[] {
  const [all, gone, held, owed] = [BigInt(allocated), BigInt(spent), BigInt(reserved), BigInt(debt)];
  const whole = all > gone + held + owed ? all : gone + held + owed;
  const share = (part: bigint) => (whole > 0n ? Number((part * 10_000n) / whole) / 10_000 : 0);
  return [{ look: 'used', share: share(gone) }, { look: 'idle', share: share(held) }, { look: 'debt', share: share(owed) }];
}
