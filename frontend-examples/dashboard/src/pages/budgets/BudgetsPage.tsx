/** What may still be spent, scope by scope: allocated, spent, held and owed, as it changes. */
import { useState } from 'react';
import { Page } from '../../app/Page';
import { useSearchWord } from '../../app/router';
import { useChosenTenant } from '../../app/tenants';
import { Button } from '../../design/Button';
import { Choices, TextField } from '../../design/Field';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Pager } from '../../design/Pager';
import { BudgetListDocument, type BudgetListQueryVariables, type BudgetRowFragment } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { BudgetTable } from './BudgetTable';
import { CreateDialog } from './CreateDialog';
import { FollowBudget } from './FollowBudget';

const SHOWN = [
  { value: '', label: 'All' },
  { value: 'over', label: 'Over limit' },
  { value: 'debt', label: 'In debt' },
  { value: 'frozen', label: 'Frozen' },
  { value: 'closed', label: 'Closed' },
] as const;

type Shown = (typeof SHOWN)[number]['value'];

const FILTERS: Record<Shown, Pick<BudgetListQueryVariables, 'status' | 'isOverLimit' | 'hasDebt'>> = {
  '': {},
  over: { isOverLimit: true },
  debt: { hasDebt: true },
  frozen: { status: 'FROZEN' },
  closed: { status: 'CLOSED' },
};

export default function BudgetsPage() {
  const { can, isRoot } = useSession();
  const tenantId = useChosenTenant();
  const [word, setWord] = useSearchWord('show');
  const [search, setSearch] = useSearchWord('scope');
  const [isMaking, setMaking] = useState(false);
  const shown = SHOWN.find(({ value }) => value === word)?.value ?? '';
  return (
    <Page
      title="Budgets" lead="What may be spent, what is held for work under way, and what is gone."
      actions={can('budgets:write') && <Button look="main" onClick={() => setMaking(true)}>New budget…</Button>}
    >
      <div className="toolbar">
        <Choices<Shown> label="Show" value={shown} choices={SHOWN} onChoose={setWord} />
        <TextField label="Scope has" type="search" value={search} onChange={(event) => setSearch(event.target.value)} />
      </div>
      <Budgets filter={FILTERS[shown]} search={search} isFiltered={Boolean(word || search)} />
      {isMaking && <CreateDialog tenantId={isRoot ? tenantId : null} onClose={() => setMaking(false)} />}
    </Page>
  );
}

function Budgets({ filter, search, isFiltered }: { filter: (typeof FILTERS)[Shown]; search: string; isFiltered: boolean }) {
  const { isRoot } = useSession();
  const tenantId = useChosenTenant();
  const [after] = useSearchWord('after');
  const { data, failure, refresh } = useLiveQuery({
    query: BudgetListDocument,
    variables: { ...filter, all: isRoot && !tenantId, tenantId: isRoot ? tenantId : null, search: search || null, after: after || null },
    affectedBy: ({ kind }) => kind === 'budget' || kind === 'anything',
  });
  const [told, setTold] = useState<ReadonlyMap<string, BudgetRowFragment>>(new Map());
  const list = data?.budgets;
  if (!list) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="budgets" />;
  if (list.nodes.length === 0) return <NoBudgets isFiltered={isFiltered} />;
  const budgets = list.nodes.map((read) => newer(read, told.get(read.id)));
  return (
    <section className="panel" aria-label="Budgets">
      {failure && <FailureNote failure={failure} onRetry={refresh} />}
      {list.nodes.map(({ id, tenantId: owner, scope, unit }) => (
        <FollowBudget
          key={id} tenantId={isRoot ? owner : null} scope={scope} unit={unit}
          onBudget={(budget) => setTold((known) => new Map(known).set(budget.id, budget))}
        />
      ))}
      <BudgetTable budgets={budgets} />
      <Pager shown={budgets.length} total={list.totalCount} what="budgets" page={list.pageInfo} />
    </section>
  );
}

/** What the stream told, unless the list was read later. */
function newer(read: BudgetRowFragment, told: BudgetRowFragment | undefined): BudgetRowFragment {
  return told && (told.updatedAt ?? 0) >= (read.updatedAt ?? 0) ? told : read;
}

function NoBudgets({ isFiltered }: { isFiltered: boolean }) {
  return isFiltered
    ? <Empty title="No such budgets."><p>Choose another state above, or search for less.</p></Empty>
    : <Empty title="No budgets yet."><p>A budget says how much a scope, such as <code>tenant:acme/agent:planner</code>, may spend in a unit. Make the first one above.</p></Empty>;
}
