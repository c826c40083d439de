import { expect, it } from 'vitest';
import { DAY, HOUR, MINUTE, fromField, showDuration, showInstant, showRelative, showUtc, startOfDay, toField } from './time';

const AT = Date.UTC(2027, 0, 15, 8, 0, 9);

it('shows an instant in UTC', () => {
  expect(showUtc(AT)).toBe('2027-01-15 08:00:09 UTC');
  expect(showInstant(AT, 'utc')).toBe('15 Jan 2027, 08:00');
});

it.each([
  [0, 'under 1 s'],
  [42_000, '42 s'],
  [90 * MINUTE, '1 h 30 min'],
  [2 * DAY, '2 d'],
  [2 * DAY + 5 * MINUTE, '2 d'],
  [9 * DAY + 4 * HOUR + 7 * MINUTE, '9 d 4 h'],
])('%d ms last %s', (ms, shown) => {
  expect(showDuration(ms)).toBe(shown);
});

it.each([
  [AT + 2_000, 'now'],
  [AT - 30_000, '30 s ago'],
  [AT + 3 * HOUR, 'in 3 h'],
  [AT - 3 * DAY, '3 d ago'],
])('is told from now', (at, shown) => {
  expect(showRelative(at, AT)).toBe(shown);
});

it.each(['local', 'utc'] as const)('goes through a field and back (%s)', (zone) => {
  expect(fromField(toField(AT, zone), zone)).toBe(AT - 9_000);
  expect(fromField('2027-01', zone)).toBeNull();
});

it('finds the start of a day', () => {
  expect(startOfDay(AT, 'utc')).toBe(Date.UTC(2027, 0, 15));
});
