/** A table that becomes a list of cards on a narrow screen. Roles are spelled out: styles take them away there. */
import type { ReactNode } from 'react';

export interface Column<Row> {
  name: string;
  cell: (row: Row) => ReactNode;
  isNumber?: boolean;
}

interface TableProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  /** For a row that is to be seen at a glance: new, or in trouble. */
  markOf?: (row: Row) => string | undefined;
}

export function Table<Row>({ caption, columns, rows, keyOf, markOf }: TableProps<Row>) {
  return (
    <table className="table" role="table">
      <caption className="hidden-text">{caption}</caption>
      <TableHead columns={columns} />
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={keyOf(row)} role="row" data-mark={markOf?.(row)}>
            {columns.map(({ name, cell, isNumber }) => (
              <td key={name} role="cell" data-label={name} className={isNumber ? 'number' : undefined}><div className="cell">{cell(row)}</div></td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function TableHead<Row>({ columns }: { columns: readonly Column<Row>[] }) {
  return (
    <thead role="rowgroup">
      <tr role="row">
        {columns.map(({ name, isNumber }) => (
          <th key={name} role="columnheader" scope="col" className={isNumber ? 'number' : undefined}>{name}</th>
        ))}
      </tr>
    </thead>
  );
}
