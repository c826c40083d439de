import { describe, expect, it } from 'vitest';
import { editableAmount, exactAmount, group, parseAmount, shareOf, showAmount, sum } from './amounts';

describe('dollars from microcents', () => {
  it.each([
    ['0', '$0.00'],
    ['100000000', '$1.00'],
    ['123456789000000', '$1,234,567.89'],
    ['99500000', '$1.00'], // to the cent, the half up
    ['99499999', '$0.99'],
    ['1000000', '$0.01'],
    ['42', '$0.00000042'],
    ['-250000000', '−$2.50'],
    ['9223372036854775807', '$92,233,720,368.55'],
  ])('%s is shown as %s', (amount, shown) => {
    expect(showAmount(amount, 'USD_MICROCENTS')).toBe(shown);
  });

  it('keeps every digit where it matters', () => {
    expect(exactAmount('99499999', 'USD_MICROCENTS')).toBe('$0.99499999');
    expect(exactAmount('9223372036854775807', 'USD_MICROCENTS')).toBe('$92,233,720,368.54775807');
  });
});

describe('what somebody types', () => {
  it.each([
    ['12.5', '1250000000'],
    ['$1,000', '100000000000'],
    ['0.00000001', '1'],
    ['92233720368.54775807', '9223372036854775807'],
    ['7.', '700000000'],
  ])('%s dollars is %s microcents, exactly', (text, amount) => {
    expect(parseAmount(text, 'USD_MICROCENTS')).toEqual({ amount });
  });

  it.each(['', '-1', '1e3', '.5', '0.000000001', '92233720368.54775808', 'ten'])('%j is refused', (text) => {
    expect(parseAmount(text, 'USD_MICROCENTS').problem).toBeTruthy();
  });

  it('takes only whole tokens', () => {
    expect(parseAmount('1 000', 'TOKENS')).toEqual({ amount: '1000' });
    expect(parseAmount('1.5', 'TOKENS').problem).toBe('Only whole numbers.');
  });

  it('comes back as it was shown for editing', () => {
    for (const amount of ['1', '123456789', '9223372036854775807']) {
      expect(parseAmount(editableAmount(amount, 'USD_MICROCENTS'), 'USD_MICROCENTS')).toEqual({ amount });
    }
  });
});

it('shares stay between nothing and all', () => {
  expect(shareOf('1', '4')).toBe(0.25);
  expect(shareOf('5', '4')).toBe(1);
  expect(shareOf('-1', '4')).toBe(0);
  expect(shareOf('1', '0')).toBe(0);
});

it('sums beyond what a number holds', () => {
  expect(sum(['9007199254740993', '1'])).toBe(9007199254740994n);
  expect(group(1234567n)).toBe('1,234,567');
});
