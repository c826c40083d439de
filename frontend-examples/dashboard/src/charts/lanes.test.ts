import { expect, it } from 'vitest';
import { placeInLanes, type Placed } from './lanes';

const grant = (id: string, startsAt: number, endsAt: number, slots: number): Placed => ({ id, startsAt, endsAt, slots });

it('puts grants above one another, and a renewal where its forerunner was', () => {
  const lanes = placeInLanes([grant('a', 0, 10, 4), grant('b', 0, 20, 2), grant('renewal', 10, 20, 4)]);
  expect(lanes.get('a')).toEqual([{ bottom: 0, top: 4 }]);
  expect(lanes.get('b')).toEqual([{ bottom: 4, top: 6 }]);
  expect(lanes.get('renewal')).toEqual([{ bottom: 0, top: 4 }]);
});

it('splits a grant only where nothing else is left', () => {
  const lanes = placeInLanes([grant('a', 0, 10, 2), grant('b', 0, 30, 2), grant('c', 0, 10, 2), grant('d', 10, 20, 4)]);
  expect(lanes.get('d')).toEqual([{ bottom: 0, top: 2 }, { bottom: 4, top: 6 }]);
});

it('keeps a grant whole as long as it stays below the ceiling', () => {
  const lanes = placeInLanes([grant('a', 0, 10, 2), grant('b', 0, 30, 2), grant('d', 10, 20, 4)], 8);
  expect(lanes.get('d')).toEqual([{ bottom: 4, top: 8 }]);
});

it('never lets two that overlap share a lane, nor uses more lanes than the peak has slots', () => {
  let seed = 7;
  const chance = (most: number) => (seed = (seed * 48_271) % 2_147_483_647) % most;
  for (let round = 0; round < 12; round += 1) {
    const grants = Array.from({ length: 20 }, (_, index) => {
      const startsAt = chance(100);
      return grant(`g${index}`, startsAt, startsAt + 1 + chance(40), 1 + chance(9));
    });
    const lanes = placeInLanes(grants);
    let peak = 0;
    let highest = 0;
    for (let at = 0; at < 145; at += 1) {
      const live = grants.filter(({ startsAt, endsAt }) => startsAt <= at && at < endsAt);
      peak = Math.max(peak, live.reduce((total, { slots }) => total + slots, 0));
      const used = new Set<number>();
      let taken = 0;
      for (const { id, slots } of live) {
        taken += slots;
        const own = (lanes.get(id) ?? []).flatMap(({ bottom, top }) => Array.from({ length: top - bottom }, (_, lane) => bottom + lane));
        for (const lane of own) {
          used.add(lane);
          highest = Math.max(highest, lane + 1);
        }
      }
      expect(used.size).toBe(taken); // each has as many lanes as slots, and none is another's
    }
    expect(highest).toBeLessThanOrEqual(peak);
  }
});
