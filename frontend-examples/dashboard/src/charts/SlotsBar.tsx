/** How the slots of a capacity reservation are taken right now. */
import { group } from '../format/amounts';

interface Slots {
  total: number;
  inUse: number;
  grantedNow: number;
  unusedGranted: number;
  free: number;
}

interface Part {
  name: string;
  about: string;
  look: string;
  slots: number;
}

/** Running inside of grants, granted and idle, running outside of grants, and what anybody can take. */
export function partsOf({ inUse, grantedNow, unusedGranted, free }: Slots): Part[] {
  const used = grantedNow - unusedGranted;
  return [
    { name: 'Granted, in use', about: 'instances run in grants', look: 'used', slots: used },
    { name: 'Granted, idle', about: 'paid for by a tenant, and nothing runs', look: 'idle', slots: unusedGranted },
    { name: 'In use without a grant', about: 'ordinary instances', look: 'ordinary', slots: Math.max(0, inUse - used) },
    { name: 'Free', about: 'for anybody’s next instance', look: 'free', slots: free },
  ];
}

export function SlotsBar({ head }: { head: Slots }) {
  const parts = partsOf(head);
  const sum = parts.reduce((total, { slots }) => total + slots, 0);
  const whole = Math.max(head.total, sum, 1);
  const spoken = parts.map(({ name, slots }) => `${name}: ${slots}`).join(', ');
  return (
    <div className="slots">
      <div className="slots-bar" role="img" aria-label={`${head.total} slots now. ${spoken}.`}>
        {parts.map(({ look, slots }) => slots > 0 && (
          <span key={look} className={`slots-part part-${look}`} style={{ width: `${(slots / whole) * 100}%` }} />
        ))}
        {sum > head.total && <span className="slots-total" style={{ left: `${(head.total / whole) * 100}%` }} />}
      </div>
      <ul className="legend">
        {parts.map(({ name, about, look, slots }) => (
          <li key={look} title={about}><span className={`swatch part-${look}`} aria-hidden="true" />{name} <b>{group(slots)}</b></li>
        ))}
        <li className="legend-total">of <b>{group(head.total)}</b> slots now</li>
      </ul>
    </div>
  );
}
