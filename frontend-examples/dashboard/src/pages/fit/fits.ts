/** What somebody looks for, and where it fits. */
import { DAY, HOUR } from '../../format/time';
import type { FitPlacesQuery } from '../../graphql/generated';

/** A term that is thought of, drawn over the timeline of its reservation. */
export interface Ghost {
  capacityId: string;
  startsAt: number;
  endsAt: number;
  slots: number;
}

export interface Wish {
  tenantId: string;
  projectId: string;
  slots: string;
  length: string;
  unit: LengthUnit;
  /** Null: from now on. */
  notBefore: number | null;
}

export type LengthUnit = 'hours' | 'days' | 'weeks';

const LENGTHS: Record<LengthUnit, number> = { hours: HOUR, days: DAY, weeks: 7 * DAY };
export const LENGTH_UNITS = (Object.keys(LENGTHS) as LengthUnit[]).map((value) => ({ value, label: value }));

export type Place = NonNullable<FitPlacesQuery['capacityReservations']>['nodes'][number];
export type Fit = NonNullable<Place['earliestFit']>[number];

/** Where and when, as precise as a grant needs it. */
export interface Choice {
  place: Place;
  startsAt: number;
  endsAt: number;
}

/** A whole number from 1 on, or null. */
export function wholeOf(text: string): number | null {
  const plain = text.trim();
  return /^[1-9]\d{0,8}$/.test(plain) ? Number(plain) : null;
}

export function durationOf({ length, unit }: Pick<Wish, 'length' | 'unit'>): number | null {
  const count = wholeOf(length);
  return count === null ? null : count * LENGTHS[unit];
}

/** Places with room, the earliest first; those without a pool can have no grants. */
export function inOrder(places: readonly Place[]): Place[] {
  const startOf = ({ earliestFit }: Place) => earliestFit?.[0]?.startsAt ?? Number.POSITIVE_INFINITY;
  return places
    .filter(({ poolId, earliestFit }) => poolId && earliestFit && earliestFit.length > 0)
    .sort((one, other) => startOf(one) - startOf(other) || other.total - one.total);
}
