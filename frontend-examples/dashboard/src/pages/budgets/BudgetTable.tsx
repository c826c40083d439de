import { useState, type CSSProperties } from 'react';
import { TenantName } from '../../app/TenantName';
import { Badge } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Meter } from '../../design/Meter';
import { Table, type Column } from '../../design/Table';
import { exactAmount, showAmount } from '../../format/amounts';
import { showShare } from '../../format/slots';
import type { BudgetRowFragment } from '../../graphql/generated';
import { useSession } from '../../session/session';
import { FreezeDialog } from './FreezeDialog';
import { FundDialog } from './FundDialog';
import { inTree, sharesOf, type Branch } from './tree';

type Open = { what: 'fund' | 'freeze'; budget: BudgetRowFragment } | null;

export function BudgetTable({ budgets }: { budgets: readonly BudgetRowFragment[] }) {
  const { can, isRoot } = useSession();
  const [open, setOpen] = useState<Open>(null);
  const columns = columnsFor(isRoot, can('budgets:write') ? setOpen : null);
  const close = () => setOpen(null);
  // The dialog shows the budget as it is by now, not as it was when it was opened.
  const opened = open && (budgets.find(({ id }) => id === open.budget.id) ?? open.budget);
  return (
    <>
      <Table
        caption="Budgets, each below the scope that it is part of" columns={columns} rows={inTree(budgets)}
        keyOf={({ budget }) => budget.id} markOf={({ budget }) => (budget.isOverLimit ? 'bad' : undefined)}
      />
      {open?.what === 'fund' && opened && <FundDialog budget={opened} onClose={close} />}
      {open?.what === 'freeze' && opened && <FreezeDialog budget={opened} onClose={close} />}
    </>
  );
}

function columnsFor(isRoot: boolean, onOpen: ((open: Open) => void) | null): Column<Branch>[] {
  return [
    { name: 'Scope', cell: (branch) => <Scope branch={branch} isRoot={isRoot} /> },
    { name: 'Spent · held · owed', cell: ({ budget }) => <Bar budget={budget} /> },
    { name: 'Allocated', cell: ({ budget }) => <Amount budget={budget} of="allocated" />, isNumber: true },
    { name: 'Spent', cell: ({ budget }) => <Amount budget={budget} of="spent" />, isNumber: true },
    { name: 'Held', cell: ({ budget }) => <Amount budget={budget} of="reserved" />, isNumber: true },
    { name: 'Left', cell: ({ budget }) => <b><Amount budget={budget} of="remaining" /></b>, isNumber: true },
    { name: 'Actions', cell: ({ budget }) => onOpen && budget.status !== 'CLOSED' && <Actions budget={budget} onOpen={onOpen} />, isNumber: true },
  ];
}

function Scope({ branch: { budget, depth, label }, isRoot }: { branch: Branch; isRoot: boolean }) {
  return (
    <span className="branch two-lines" style={{ '--depth': depth } as CSSProperties}>
      <span><b title={budget.scope}>{label}</b> <Flags budget={budget} /></span>
      {isRoot && depth === 0 && <span className="small"><TenantName id={budget.tenantId} /></span>}
    </span>
  );
}

function Flags({ budget }: { budget: BudgetRowFragment }) {
  const owed = budget.debt === '0' ? '' : `, ${showAmount(budget.debt, budget.unit)} owed`;
  return (
    <span className="flags">
      {budget.isOverLimit && <Badge tone="bad">over limit{owed}</Badge>}
      {!budget.isOverLimit && owed && <Badge tone="warn">in debt{owed}</Badge>}
      {budget.status === 'FROZEN' && <Badge tone="info">frozen</Badge>}
      {budget.status === 'CLOSED' && <Badge>closed</Badge>}
    </span>
  );
}

function Bar({ budget }: { budget: BudgetRowFragment }) {
  const { unit, spent, reserved, debt, utilizationMillionths } = budget;
  const owed = debt === '0' ? '' : `, ${showAmount(debt, unit)} owed`;
  const said = `${showAmount(spent, unit)} spent, ${showAmount(reserved, unit)} held${owed}, of ${showAmount(budget.allocated, unit)}`;
  return (
    <span className="measured">
      <Meter parts={sharesOf(budget)} label={said} />
      <span>{showShare(Number(utilizationMillionths) / 1_000_000)}</span>
    </span>
  );
}

function Amount({ budget, of }: { budget: BudgetRowFragment; of: 'allocated' | 'spent' | 'reserved' | 'remaining' }) {
  const amount = budget[of];
  return <span title={exactAmount(amount, budget.unit)} className={amount.startsWith('-') ? 'bad-text' : undefined}>{showAmount(amount, budget.unit)}</span>;
}

function Actions({ budget, onOpen }: { budget: BudgetRowFragment; onOpen: (open: Open) => void }) {
  const about = <span className="hidden-text"> {budget.scope}</span>;
  return (
    <span className="row-actions">
      <Button onClick={() => onOpen({ what: 'fund', budget })}>Fund…{about}</Button>
      <Button onClick={() => onOpen({ what: 'freeze', budget })}>{budget.status === 'FROZEN' ? 'Unfreeze…' : 'Freeze…'}{about}</Button>
    </span>
  );
}
