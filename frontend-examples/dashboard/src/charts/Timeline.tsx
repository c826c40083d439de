/** Grants of one capacity reservation against its total: each a block as high as its slots and as long as its term. */
import { useMemo, useState } from 'react';
import { useZone } from '../app/preferences';
import { group } from '../format/amounts';
import { showInstant } from '../format/time';
import { scale } from './axis';
import { Frame, type Box } from './Frame';
import { GrantBlock, type DrawnGrant } from './GrantBlock';
import { placeInLanes } from './lanes';
import { Shortfall } from './Shortfall';
import { useWidth } from './useWidth';

export interface Step {
  at: number;
  granted: number;
  free: number;
}

interface TimelineProps {
  name: string;
  total: number;
  from: number;
  to: number;
  now: number;
  grants: readonly DrawnGrant[];
  steps: readonly Step[];
  /** A term that is thought of, not yet granted. */
  ghost: { startsAt: number; endsAt: number; slots: number } | null;
  nameOf: (tenantId: string) => string;
  hueOf: (tenantId: string) => number;
}

const HEIGHT = 232;
const NARROW = 560;
const NARROW_HEIGHT = 176;

export function Timeline(props: TimelineProps) {
  const { name, total, from, to, now, grants, steps, ghost } = props;
  const [element, width] = useWidth<HTMLDivElement>();
  const [pointed, setPointed] = useState<number | null>(null);
  const height = width < NARROW ? NARROW_HEIGHT : HEIGHT;
  const peak = steps.reduce((most, { granted }) => Math.max(most, granted), 0);
  const drawn = useMemo(() => withGhost(grants, ghost), [grants, ghost]);
  const lanes = useMemo(() => placeInLanes(drawn, total), [drawn, total]);
  const highest = Math.max(1, total, peak, ...[...lanes.values()].flat().map(({ top }) => top));
  const box: Box = { left: 40, right: Math.max(41, width - 8), top: 14, bottom: height - 24 };
  const x = scale(from, to, box.left, box.right);
  const y = scale(0, highest * 1.06, box.bottom, box.top);
  return (
    <div className="timeline" ref={element}>
      {width > 0 && (
        <svg
          width={width} height={height} role="group" aria-label={`Grants on ${name} over time, of ${group(total)} slots`}
          onPointerMove={(event) => setPointed(from + ((event.nativeEvent.offsetX - box.left) / (box.right - box.left)) * (to - from))}
          onPointerLeave={() => setPointed(null)}
        >
          <Frame box={box} from={from} to={to} x={x} y={y} highest={highest} total={total} />
          {now > from && <rect className="timeline-past" x={box.left} y={box.top} width={Math.max(0, Math.min(x(now), box.right) - box.left)} height={box.bottom - box.top} />}
          {drawn.map((grant) => (
            <GrantBlock
              key={grant.id} grant={grant} lanes={lanes.get(grant.id) ?? []} x={x} y={y} box={box}
              name={grant.id === GHOST ? 'New grant' : props.nameOf(grant.tenantId)} hue={props.hueOf(grant.tenantId)} isGhost={grant.id === GHOST}
            />
          ))}
          <Shortfall steps={steps} total={total} to={to} x={x} y={y} />
          <line className="timeline-total" x1={box.left} x2={box.right} y1={y(total)} y2={y(total)} />
          {now > from && now < to && <Now at={x(now)} box={box} />}
          {pointed !== null && pointed > from && pointed < to && <line className="timeline-pointer" x1={x(pointed)} x2={x(pointed)} y1={box.top} y2={box.bottom} />}
        </svg>
      )}
      <Readout at={pointed !== null && pointed > from && pointed < to ? pointed : null} now={now} steps={steps} total={total} />
    </div>
  );
}

const GHOST = 'ghost';

function withGhost(grants: readonly DrawnGrant[], ghost: TimelineProps['ghost']): DrawnGrant[] {
  return ghost ? [...grants, { id: GHOST, tenantId: '', state: 'SCHEDULED', idle: 0, ...ghost }] : [...grants];
}

function Now({ at, box }: { at: number; box: Box }) {
  return (
    <g className="timeline-now">
      <line x1={at} x2={at} y1={box.top} y2={box.bottom} />
      <text x={at} y={box.top - 4} textAnchor="middle">now</text>
    </g>
  );
}

/** What holds at the pointer; without one, now. */
function Readout({ at, now, steps, total }: { at: number | null; now: number; steps: readonly Step[]; total: number }) {
  const zone = useZone();
  const instant = at ?? now;
  const step = steps.findLast((one) => one.at <= instant);
  if (!step) return <p className="readout">&nbsp;</p>;
  const over = step.granted - total;
  return (
    <p className="readout">
      {at === null ? 'Now' : showInstant(at, zone)}: <b>{group(step.granted)}</b> granted, <b>{group(step.free)}</b> free for grants
      {over > 0 && <span className="bad-text">, {group(over)} short</span>}
    </p>
  );
}
