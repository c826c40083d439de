import { useNow } from '../app/now';
import { useZone } from '../app/preferences';
import { showClock, showInstant, showRelative, showUtc } from '../format/time';

interface InstantProps {
  at: number;
  /** How far away it is, beside it. */
  relative?: boolean;
  /** Only the time of the day, with seconds: for a list of what just happened. */
  clock?: boolean;
}

/** In the viewer's zone; UTC is on hover, and everywhere when that is chosen in the bar at the top. */
export function Instant({ at, relative = false, clock = false }: InstantProps) {
  const zone = useZone();
  return (
    <time className="instant" dateTime={new Date(at).toISOString()} title={showUtc(at)}>
      {clock ? showClock(at, zone) : showInstant(at, zone)}
      {relative && <Away at={at} />}
    </time>
  );
}

function Away({ at }: { at: number }) {
  return <span className="soft"> {showRelative(at, useNow())}</span>;
}

export function Term({ startsAt, endsAt }: { startsAt: number; endsAt: number }) {
  return (
    <span className="term">
      <Instant at={startsAt} /> <span aria-hidden="true">→</span><span className="hidden-text">until</span> <Instant at={endsAt} />
    </span>
  );
}
