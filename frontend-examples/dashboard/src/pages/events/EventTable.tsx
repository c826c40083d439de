import { To } from '../../app/router';
import { TenantName } from '../../app/TenantName';
import { Badge, type Tone } from '../../design/Badge';
import { Button } from '../../design/Button';
import { Instant } from '../../design/Instant';
import { Table, type Column } from '../../design/Table';
import { shortId } from '../../format/names';
import type { Happening } from '../../session/eventLog';
import { tieOf } from './filter';

interface EventTableProps {
  events: readonly Happening[];
  caption: string;
  /** Rows come in by themselves, and are marked for a moment. */
  isLive?: boolean;
  /** Shows only what belongs together. */
  onTie: (id: string) => void;
}

export function EventTable({ events, caption, isLive = false, onTie }: EventTableProps) {
  const markOf = () => (isLive ? 'new' : undefined);
  return <Table caption={caption} columns={columnsFor(onTie)} rows={events} keyOf={({ id }) => id} markOf={markOf} />;
}

function columnsFor(onTie: (id: string) => void): Column<Happening>[] {
  return [
    { name: 'When', cell: ({ occurredAt }) => <Instant at={occurredAt} clock /> },
    { name: 'What', cell: ({ type }) => <Badge tone={toneOf(type)}>{type}</Badge> },
    { name: 'Tenant', cell: ({ tenantId }) => <TenantName id={tenantId} /> },
    { name: 'About', cell: (event) => <About event={event} /> },
    { name: 'Belongs to', cell: (event) => <Tie event={event} onTie={onTie} /> },
    { name: 'Facts', cell: ({ facts }) => <Facts facts={facts} /> },
  ];
}

const BAD = /denied|exhausted|over_limit_entered|debt_incurred|anomaly|spike|cancelled|short|failed|unavailable|blocked/;
const WARN = /overage|frozen|expired|ended|threshold|ending|closed|suspended|revoked|slow/;
const GOOD = /created|active|funded|exited|repaid|unfrozen|reactivated/;

function toneOf(type: string): Tone {
  if (BAD.test(type)) return 'bad';
  if (GOOD.test(type)) return 'good';
  return WARN.test(type) ? 'warn' : 'neutral';
}

function About({ event: { grantId, scope } }: { event: Happening }) {
  if (grantId) return <To to={['grants', grantId]}>{shortId(grantId)}</To>;
  return scope ? <To to={['budgets']} search={{ scope }}>{scope}</To> : null;
}

function Tie({ event, onTie }: { event: Happening; onTie: (id: string) => void }) {
  const tie = tieOf(event);
  if (!tie) return null;
  return <Button className="tie" look="quiet" title={`Show only what belongs to ${tie}`} onClick={() => onTie(tie)}><code>{shortId(tie)}</code></Button>;
}

function Facts({ facts }: { facts: unknown }) {
  return (
    <details className="more">
      <summary>Show</summary>
      <pre className="code-block">{JSON.stringify(facts, null, 2)}</pre>
    </details>
  );
}
