import { useZone } from '../app/preferences';
import { group } from '../format/amounts';
import { slotTicks, ticks } from './axis';

/** The inside of a chart, in pixels. */
export interface Box {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

interface FrameProps {
  box: Box;
  from: number;
  to: number;
  x: (at: number) => number;
  y: (slots: number) => number;
  highest: number;
  total?: number;
}

/** Axes and grid. What is below the total is the room that there is. */
export function Frame({ box, from, to, x, y, highest, total }: FrameProps) {
  const zone = useZone();
  return (
    <g className="frame" aria-hidden="true">
      {total !== undefined && total > 0 && <rect className="frame-room" x={box.left} y={y(total)} width={box.right - box.left} height={box.bottom - y(total)} />}
      {ticks(from, to, box.right - box.left, zone).map(({ at, label, isDay }) => (
        <g key={at}>
          <line className={isDay ? 'frame-day' : 'frame-hour'} x1={x(at)} x2={x(at)} y1={box.top} y2={box.bottom} />
          <text x={x(at) + 3} y={box.bottom + 16}>{label}</text>
        </g>
      ))}
      {slotTicks(highest).map((slots) => (
        <text key={slots} className="frame-slots" x={box.left - 6} y={y(slots) + 4} textAnchor="end">{group(slots)}</text>
      ))}
      <line className="frame-ground" x1={box.left} x2={box.right} y1={box.bottom} y2={box.bottom} />
    </g>
  );
}
