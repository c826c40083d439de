/** Where the slots of each grant are drawn: as one block where possible, in the lowest lanes that are free. */

export interface Placed {
  id: string;
  startsAt: number;
  endsAt: number;
  slots: number;
}

/** Half-open: the lanes from `bottom` up to right before `top`. */
export interface Lanes {
  bottom: number;
  top: number;
}

/**
 * Lanes of each grant. Grants that overlap never share one, and no more lanes are used than are granted at the peak,
 * or than `ceiling` has. A grant is split over several blocks only where what is free lies apart. A renewal, which starts right where
 * another one ends, finds that one's lanes free and stays at its height.
 */
export function placeInLanes(grants: readonly Placed[], ceiling = 0): Map<string, Lanes[]> {
  const inOrder = [...grants].sort((one, other) => one.startsAt - other.startsAt || other.slots - one.slots || compare(one.id, other.id));
  const taken: { until: number; id: string; lanes: Lanes[] }[] = [];
  const placed = new Map<string, Lanes[]>();
  for (const grant of inOrder) {
    const open = taken.filter(({ until }) => until > grant.startsAt);
    taken.length = 0;
    taken.push(...open);
    const lanes = take(gaps(open.flatMap((block) => block.lanes)), grant.slots, ceiling);
    taken.push({ until: grant.endsAt, id: grant.id, lanes });
    placed.set(grant.id, lanes);
  }
  return placed;
}

/** The first gap that holds all of it; else from the bottom, as much as each gap holds. */
function take(free: Lanes[], slots: number, ceiling: number): Lanes[] {
  const whole = free.find(({ bottom, top }) => top - bottom >= slots && (Number.isFinite(top) || bottom + slots <= ceiling));
  if (whole) return [{ bottom: whole.bottom, top: whole.bottom + slots }];
  const lanes: Lanes[] = [];
  let wanted = slots;
  for (const { bottom, top } of free) {
    const size = Math.min(wanted, top - bottom);
    lanes.push({ bottom, top: bottom + size });
    wanted -= size;
    if (wanted === 0) break;
  }
  return lanes;
}

/** What lies between the taken lanes, from the bottom up; the last gap has no end. */
function gaps(taken: Lanes[]): Lanes[] {
  const free: Lanes[] = [];
  let bottom = 0;
  for (const lanes of [...taken].sort((one, other) => one.bottom - other.bottom)) {
    if (lanes.bottom > bottom) free.push({ bottom, top: lanes.bottom });
    bottom = Math.max(bottom, lanes.top);
  }
  return [...free, { bottom, top: Number.POSITIVE_INFINITY }];
}

function compare(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
