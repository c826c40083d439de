import { Meter } from '../../design/Meter';
import { shareOf } from '../../format/amounts';
import { showShare, showSlotHours } from '../../format/slots';

interface Used {
  usedSlotMs: string;
  committedSlotMs: string;
}

/** Slot-hours that were paid for and in which nothing ran. */
export function wasteOf({ usedSlotMs, committedSlotMs }: Used): bigint {
  const waste = BigInt(committedSlotMs) - BigInt(usedSlotMs);
  return waste > 0n ? waste : 0n;
}

export function Utilisation({ grant }: { grant: Used }) {
  if (grant.committedSlotMs === '0') return <span className="soft">not started</span>;
  const share = shareOf(grant.usedSlotMs, grant.committedSlotMs);
  const said = `${showShare(share)} of ${showSlotHours(grant.committedSlotMs)} used`;
  return (
    <span className="measured">
      <Meter parts={[{ look: 'used', share }, { look: 'idle', share: 1 - share }]} label={said} />
      <span>{showShare(share)}</span>
    </span>
  );
}
