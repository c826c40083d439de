/** Amounts of budgets: exact 64-bit integers on the wire (as strings), and in the unit people think in. */
import type { BudgetUnit } from '../graphql/generated';

/** A US dollar in microcents, which are 10^-8 dollars. */
const DOLLAR = 100_000_000n;
const DOLLAR_DIGITS = 8;
/** What a budget can hold at most: 2^63 - 1. */
const MOST = 9_223_372_036_854_775_807n;

const UNIT_NAMES: Record<BudgetUnit, string> = {
  USD_MICROCENTS: 'US dollars',
  TOKENS: 'tokens',
  CREDITS: 'credits',
  RISK_POINTS: 'risk points',
};

export const UNITS = Object.keys(UNIT_NAMES) as BudgetUnit[];

export function unitName(unit: BudgetUnit): string {
  return UNIT_NAMES[unit];
}

/** For reading: dollars to the cent, or to the first digits that count; other units as they are. */
export function showAmount(amount: string, unit: BudgetUnit): string {
  const value = BigInt(amount);
  if (unit === 'USD_MICROCENTS') return showDollars(value);
  return `${group(value)} ${UNIT_NAMES[unit]}`;
}

/** Every digit: for a title, and where an amount is about to be changed. */
export function exactAmount(amount: string, unit: BudgetUnit): string {
  const value = BigInt(amount);
  if (unit !== 'USD_MICROCENTS') return `${group(value)} ${UNIT_NAMES[unit]}`;
  return `${sign(value)}$${decimal(magnitude(value), 2)}`;
}

/** An amount as it is typed into a field: no sign of the unit, no grouping. */
export function editableAmount(amount: string, unit: BudgetUnit): string {
  const value = BigInt(amount);
  if (unit !== 'USD_MICROCENTS') return value.toString();
  return sign(value).replace('−', '-') + decimal(magnitude(value), 0).replaceAll(',', '');
}

export type Parsed = { amount: string; problem?: never } | { amount?: never; problem: string };

/** What somebody typed, as the integer the wire takes. Never through a float. */
export function parseAmount(text: string, unit: BudgetUnit): Parsed {
  const plain = text.trim().replace(/^\$/, '').replace(/[,\s_]/g, '');
  const digits = unit === 'USD_MICROCENTS' ? DOLLAR_DIGITS : 0;
  const match = /^(\d+)(?:\.(\d*))?$/.exec(plain);
  if (!match) return { problem: digits ? 'Enter an amount such as 12.50.' : 'Enter a whole number.' };
  const fraction = (match[2] ?? '').replace(/0+$/, '');
  if (fraction.length > digits) {
    return { problem: digits ? `At most ${digits} digits after the point.` : 'Only whole numbers.' };
  }
  const value = BigInt(match[1] + fraction.padEnd(digits, '0'));
  return value > MOST ? { problem: 'That is more than a budget can hold.' } : { amount: value.toString() };
}

/** `part` of `whole` from 0 to 1, to a ten-thousandth; 0 of nothing. */
export function shareOf(part: string | bigint, whole: string | bigint): number {
  const total = BigInt(whole);
  if (total <= 0n) return 0;
  const share = Number((BigInt(part) * 10_000n) / total) / 10_000;
  return Math.min(1, Math.max(0, share));
}

export function sum(amounts: Iterable<string>): bigint {
  let total = 0n;
  for (const amount of amounts) total += BigInt(amount);
  return total;
}

/** 1,234,567 */
export function group(value: bigint | number): string {
  return sign(BigInt(value)) + magnitude(BigInt(value)).toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

function showDollars(value: bigint): string {
  const size = magnitude(value);
  if (size === 0n) return '$0.00';
  if (size >= DOLLAR / 100n) {
    const cents = (size + DOLLAR / 200n) / (DOLLAR / 100n);
    return `${sign(value)}$${group(cents / 100n)}.${(cents % 100n).toString().padStart(2, '0')}`;
  }
  return `${sign(value)}$${decimal(size, 2)}`; // below a cent every digit counts
}

/** Dollars with at least so many digits behind the point, and no zero that says nothing. */
function decimal(size: bigint, least: number): string {
  const fraction = (size % DOLLAR).toString().padStart(DOLLAR_DIGITS, '0').replace(/0+$/, '').padEnd(least, '0');
  return group(size / DOLLAR) + (fraction ? `.${fraction}` : '');
}

function magnitude(value: bigint): bigint {
  return value < 0n ? -value : value;
}

function sign(value: bigint): string {
  return value < 0n ? '−' : '';
}
