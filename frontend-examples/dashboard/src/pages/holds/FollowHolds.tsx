import { HoldBudgetChangedDocument, HoldBudgetsDocument } from '../../graphql/generated';
import { useLiveQuery, useStream } from '../../graphql/live';
import { useSession } from '../../session/session';

type Budget = { scope: string; unit: 'USD_MICROCENTS' | 'TOKENS' | 'CREDITS' | 'RISK_POINTS' };

/** Draws nothing: a hold changes the budgets of its scopes, so whoever follows those hears of every hold. */
export function FollowHolds({ tenantId, owner }: { tenantId: string; owner: string | null }) {
  const { data } = useLiveQuery({
    query: HoldBudgetsDocument, variables: { tenantId: owner }, affectedBy: ({ kind }) => kind === 'anything',
  });
  const budgets = outermost(data?.budgets?.nodes ?? []);
  return budgets.map(({ scope, unit }) => <Follow key={`${scope} ${unit}`} tenantId={tenantId} owner={owner} scope={scope} unit={unit} />);
}

/** Those with no budget of their unit above them: what happens below happens in them, too. */
export function outermost<Kind extends Budget>(budgets: readonly Kind[]): Kind[] {
  return budgets.filter(({ scope, unit }) => !budgets.some((other) => other.unit === unit && scope.startsWith(`${other.scope}/`)));
}

function Follow({ tenantId, owner, scope, unit }: { tenantId: string; owner: string | null } & Budget) {
  const { changes } = useSession();
  useStream({
    document: HoldBudgetChangedDocument,
    variables: { tenantId: owner, scope, unit },
    onValue: () => changes.tell({ kind: 'budget', tenantId, scope }),
  }, `${tenantId} ${scope} ${unit}`);
  return null;
}
