/** Metered slot-hours of a grant: committed against used, by hour for a short term, by day for a long one. */
import { useNow } from '../../app/now';
import { useZone } from '../../app/preferences';
import { scale, ticks } from '../../charts/axis';
import { useWidth } from '../../charts/useWidth';
import { showSlotHours } from '../../format/slots';
import { DAY, HOUR, showInstant } from '../../format/time';
import { GrantUsageByDayDocument, GrantUsageByHourDocument } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import type { Detail } from './GrantPage';

const HOURLY_MOST = 3 * DAY;
const HEIGHT = 170;
const COMMITTED = 'vm.grant.slot.hours';
const USED = 'vm.grant.usage.hours';

export interface Bar {
  at: number;
  committed: bigint;
  used: bigint;
}

export function UsageChart({ grant }: { grant: Detail }) {
  const now = useNow(60_000);
  const to = Math.min(now, grant.endsAt);
  const from = grant.startsAt - (grant.startsAt % HOUR);
  const { bars, step, isRead } = useBars(grant, from, Math.ceil(to / HOUR) * HOUR);
  if (grant.startsAt > now) return null;
  return (
    <section className="panel" aria-labelledby="usage">
      <header className="panel-head">
        <h2 id="usage">Usage</h2>
        <ul className="legend push">
          <li><span className="swatch part-used" aria-hidden="true" />used</li>
          <li><span className="swatch part-free" aria-hidden="true" />committed</li>
        </ul>
      </header>
      {bars.length > 0 && <Bars bars={bars} step={step} />}
      {bars.length === 0 && isRead && <p className="soft">No hour of it is metered yet: that is done once an hour, for the hours that are over.</p>}
    </section>
  );
}

function useBars({ id, startsAt, endsAt }: Detail, from: number, to: number) {
  const { isRoot } = useSession();
  const isHourly = Math.min(to, endsAt) - startsAt <= HOURLY_MOST;
  const shared = { variables: { all: isRoot, id, from, to }, affectedBy: ({ kind }: { kind: string }) => kind === 'anything' };
  const byHour = useLiveQuery({ query: GrantUsageByHourDocument, ...shared, isPaused: !isHourly || to <= from });
  const byDay = useLiveQuery({ query: GrantUsageByDayDocument, ...shared, isPaused: isHourly || to <= from });
  const hours = byHour.data?.usage.totals?.map(({ hourStart, ...rest }) => ({ at: hourStart, ...rest })) ?? [];
  const days = byDay.data?.usage.totals?.map(({ dayStart, ...rest }) => ({ at: dayStart, ...rest })) ?? [];
  const isRead = Boolean(byHour.data ?? byDay.data);
  return { bars: barsOf(isHourly ? hours : days), step: isHourly ? HOUR : DAY, isRead };
}

/** Oldest first. */
export function barsOf(totals: readonly { at: number | null; meter: string; quantityMs: string }[]): Bar[] {
  const bars = new Map<number, Bar>();
  for (const { at, meter, quantityMs } of totals) {
    if (at === null) continue;
    const bar = bars.get(at) ?? { at, committed: 0n, used: 0n };
    if (meter === COMMITTED) bar.committed += BigInt(quantityMs);
    if (meter === USED) bar.used += BigInt(quantityMs);
    bars.set(at, bar);
  }
  return [...bars.values()].sort((one, other) => one.at - other.at);
}

function Bars({ bars, step }: { bars: readonly Bar[]; step: number }) {
  const zone = useZone();
  const [element, width] = useWidth<HTMLDivElement>();
  const from = bars[0]?.at ?? 0;
  const to = (bars.at(-1)?.at ?? 0) + step;
  const highest = bars.reduce((most, { committed, used }) => Math.max(most, Number(committed), Number(used)), 1);
  const x = scale(from, to, 0, width);
  const y = scale(0, highest, HEIGHT - 24, 8);
  const wide = Math.max(2, Math.min(48, x(from + step) - 3));
  const said = `${bars.length} ${step === HOUR ? 'hours' : 'days'}, the last with ${showSlotHours(bars.at(-1)?.used ?? 0n)} used`;
  return (
    <div className="timeline usage" ref={element}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={said}>
          <g className="frame" aria-hidden="true">
            {ticks(from, to, width, zone).map(({ at, label }) => <text key={at} x={x(at)} y={HEIGHT - 6}>{label}</text>)}
            <line className="frame-ground" x1={0} x2={width} y1={HEIGHT - 24} y2={HEIGHT - 24} />
          </g>
          {bars.map(({ at, committed, used }) => (
            <g key={at}>
              <title>{`${showInstant(at, zone)}: ${showSlotHours(used)} used of ${showSlotHours(committed)}`}</title>
              <rect className="bar-committed" x={x(at)} width={wide} y={y(Number(committed))} height={HEIGHT - 24 - y(Number(committed))} rx="2" />
              <rect className="bar-used" x={x(at)} width={wide} y={y(Number(used))} height={HEIGHT - 24 - y(Number(used))} rx="2" />
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}
