/** Slots, and slots times time. */
import { group } from './amounts';

const HOUR_MS = 3_600_000n;

export function showSlots(slots: number): string {
  return `${group(slots)} ${slots === 1 ? 'slot' : 'slots'}`;
}

/** Slot-milliseconds as slot-hours with one digit, without a float for the part that can be large. */
export function slotHours(slotMs: string | bigint): string {
  const tenths = (BigInt(slotMs) * 10n + HOUR_MS / 2n) / HOUR_MS;
  return `${group(tenths / 10n)}.${tenths % 10n}`;
}

export function showSlotHours(slotMs: string | bigint): string {
  return `${slotHours(slotMs)} slot-hours`;
}

export function showShare(share: number): string {
  if (share > 0 && share < 0.01) return 'under 1%';
  if (share > 0.99 && share < 1) return '99%'; // what is not all of it must not look so
  return `${Math.round(share * 100)}%`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${group(count)} ${count === 1 ? one : many}`;
}
