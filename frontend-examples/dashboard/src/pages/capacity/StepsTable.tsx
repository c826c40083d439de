import { Instant } from '../../design/Instant';
import { Table, type Column } from '../../design/Table';

interface Step {
  at: number;
  granted: number;
  free: number;
}

const COLUMNS: readonly Column<Step>[] = [
  { name: 'From', cell: ({ at }) => <Instant at={at} /> },
  { name: 'Granted', cell: ({ granted }) => granted, isNumber: true },
  { name: 'Free for grants', cell: ({ free }) => free, isNumber: true },
];
const SHOWN_MOST = 100;

/** The timeline in numbers: for screen readers, and for whoever wants to copy them. */
export function StepsTable({ steps, to }: { steps: readonly Step[]; to: number }) {
  return (
    <details className="more">
      <summary>The same in numbers</summary>
      <Table caption="Granted and free slots from each change on" columns={COLUMNS} rows={steps.slice(0, SHOWN_MOST)} keyOf={({ at }) => String(at)} />
      <p className="soft small">
        {steps.length > SHOWN_MOST ? `The first ${SHOWN_MOST} of ${steps.length} changes, ` : 'All changes '}until <Instant at={to} />.
      </p>
    </details>
  );
}
