import { expect, it } from 'vitest';
import { DAY, HOUR } from '../format/time';
import { scale, slotTicks, ticks } from './axis';

const START = Date.UTC(2027, 0, 15, 8);

it('has no more labels than fit, at round times', () => {
  for (const length of [HOUR, 5 * HOUR, DAY, 3 * DAY, 14 * DAY, 90 * DAY]) {
    for (const width of [320, 900]) {
      const found = ticks(START, START + length, width, 'utc');
      expect(found.length).toBeGreaterThan(0);
      expect(found.length).toBeLessThanOrEqual(Math.floor(width / 74) + 1);
      for (const { at, isDay } of found) expect(at % (isDay ? DAY : 5 * 60_000)).toBe(0);
    }
  }
});

it('names days and hours', () => {
  const labels = ticks(START, START + DAY, 800, 'utc').map(({ label }) => label);
  expect(labels).toContain('Sat 16 Jan');
  expect(labels).toContain('12:00');
});

it('scales', () => {
  const x = scale(100, 200, 0, 50);
  expect([x(100), x(150), x(200)]).toEqual([0, 25, 50]);
  expect(slotTicks(64)).toEqual([0, 20, 40, 60]);
  expect(slotTicks(3)).toEqual([0, 1, 2, 3]);
});
