import { Figure } from '../../design/Facts';
import { group } from '../../format/amounts';
import { showShare } from '../../format/slots';
import type { CapacityHeadFragment } from '../../graphql/generated';

/** Over all reservations that are there: one line to see whether anything needs a look. */
export function Totals({ heads, count }: { heads: readonly CapacityHeadFragment[]; count: number }) {
  const there = heads.filter(({ status }) => status !== 'GONE');
  const add = (pick: (head: CapacityHeadFragment) => number) => there.reduce((total, head) => total + pick(head), 0);
  const total = add((head) => head.total);
  const granted = add((head) => head.grantedNow);
  const idle = add((head) => head.unusedGranted);
  const shortfall = add((head) => head.shortfall);
  const partly = heads.length < count ? ` of the first ${heads.length} of ${count} reservations` : '';
  return (
    <dl className="figures" aria-label={`Totals${partly}`}>
      <Figure name="Slots held" value={group(total)} note={partly || undefined} />
      <Figure name="In use" value={group(add((head) => head.inUse))} />
      <Figure name="Granted now" value={group(granted)} note={total ? showShare(granted / total) : undefined} />
      <Figure name="Granted, idle" value={group(idle)} note={granted ? showShare(idle / granted) : undefined} tone={idle > 0 ? 'warn' : undefined} />
      <Figure name="Free" value={group(add((head) => head.free))} />
      <Figure name="Short" value={group(shortfall)} tone={shortfall ? 'bad' : undefined} />
    </dl>
  );
}
