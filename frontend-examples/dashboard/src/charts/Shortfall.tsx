import type { Step } from './Timeline';

interface ShortfallProps {
  steps: readonly Step[];
  total: number;
  to: number;
  x: (at: number) => number;
  y: (slots: number) => number;
}

/** Where more is granted than there is: what lies above the total. */
export function Shortfall({ steps, total, to, x, y }: ShortfallProps) {
  return (
    <g className="shortfall">
      {steps.map(({ at, granted }, index) => granted > total && (
        <rect key={at} x={x(at)} y={y(granted)} width={Math.max(1, x(steps[index + 1]?.at ?? to) - x(at))} height={y(total) - y(granted)}>
          <title>{`${granted - total} more granted than held`}</title>
        </rect>
      ))}
    </g>
  );
}
