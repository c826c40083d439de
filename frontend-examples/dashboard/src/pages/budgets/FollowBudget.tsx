import { BudgetChangedDocument, type BudgetRowFragment, type BudgetUnit } from '../../graphql/generated';
import { useStream } from '../../graphql/live';

interface FollowBudgetProps {
  /** Whose, for root; a tenant's key has its own. */
  tenantId: string | null;
  scope: string;
  unit: BudgetUnit;
  onBudget: (budget: BudgetRowFragment) => void;
}

/** Draws nothing: tells what the budget is now, and after each change. */
export function FollowBudget({ tenantId, scope, unit, onBudget }: FollowBudgetProps) {
  useStream({
    document: BudgetChangedDocument,
    variables: { tenantId, scope, unit },
    onValue: ({ budgetChanged }) => onBudget(budgetChanged),
  }, `${tenantId ?? ''} ${scope} ${unit}`);
  return null;
}
