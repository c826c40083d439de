import { useNow } from '../../app/now';
import { useZone } from '../../app/preferences';
import { useSearchWord } from '../../app/router';
import { DAY, startOfDay } from '../../format/time';

export const LENGTHS = [
  { value: '3d', label: '3 days', days: 3 },
  { value: '2w', label: '2 weeks', days: 14 },
  { value: '6w', label: '6 weeks', days: 42 },
] as const;

export type Length = (typeof LENGTHS)[number]['value'];

export interface Range {
  length: Length;
  from: number;
  to: number;
  setLength: (length: Length) => void;
  /** By half of its length, back or forth. */
  move: (direction: -1 | 1) => void;
  isPresent: boolean;
  toPresent: () => void;
}

/** The stretch of time that the timelines show; part of the address. A seventh of it is past, if nobody moved it. */
export function useRange(): Range {
  const zone = useZone();
  const [chosen, setChosen] = useSearchWord('range');
  const [moved, setMoved] = useSearchWord('from');
  const today = startOfDay(useNow(60_000), zone);
  const length = LENGTHS.find(({ value }) => value === chosen) ?? LENGTHS[1];
  const present = today - Math.max(1, Math.round(length.days / 7)) * DAY;
  const from = /^\d{1,15}$/.test(moved) ? Number(moved) : present;
  return {
    length: length.value,
    from,
    to: from + length.days * DAY,
    setLength: setChosen,
    move: (direction) => setMoved(String(Math.max(0, from + direction * Math.round(length.days / 2) * DAY))),
    isPresent: moved === '',
    toPresent: () => setMoved(''),
  };
}
