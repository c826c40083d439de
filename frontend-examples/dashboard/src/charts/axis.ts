/** Where a time axis has its lines, and what is written at them. */
import { DAY, HOUR, MINUTE, showDay, showMinute, startOfDay, type Zone } from '../format/time';

export interface Tick {
  at: number;
  label: string;
  /** The beginning of a day: drawn stronger. */
  isDay: boolean;
}

/** Room that a label needs, in pixels. */
const LABEL_WIDTH = 74;
const STEPS = [5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR];
const DAYS = [1, 2, 7, 14, 28];

export function ticks(from: number, to: number, width: number, zone: Zone): Tick[] {
  const most = Math.max(2, Math.floor(width / LABEL_WIDTH));
  const step = STEPS.find((size) => (to - from) / size <= most);
  return step ? withinDays(from, to, step, zone) : wholeDays(from, to, most, zone);
}

/** Counted from each day's beginning, so that a day of 23 or 25 hours keeps its round times. */
function withinDays(from: number, to: number, step: number, zone: Zone): Tick[] {
  const found: Tick[] = [];
  for (let day = startOfDay(from, zone); day < to; day = nextDay(day, 1, zone)) {
    const end = Math.min(to, nextDay(day, 1, zone));
    for (let at = day; at < end; at += step) {
      const isDay = at === day;
      if (at >= from) found.push({ at, isDay, label: isDay ? showDay(at, zone) : showMinute(at, zone) });
    }
  }
  return found;
}

function wholeDays(from: number, to: number, most: number, zone: Zone): Tick[] {
  const step = DAYS.find((days) => (to - from) / (days * DAY) <= most) ?? 56;
  const found: Tick[] = [];
  for (let at = startOfDay(from, zone); at < to; at = nextDay(at, step, zone)) {
    if (at >= from) found.push({ at, isDay: true, label: showDay(at, zone) });
  }
  return found;
}

function nextDay(day: number, days: number, zone: Zone): number {
  return startOfDay(day + days * DAY + 12 * HOUR, zone);
}

/** A function from values to pixels. */
export function scale(from: number, to: number, start: number, end: number): (value: number) => number {
  const factor = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * factor;
}

/** Few round numbers from 0 to `most`. */
export function slotTicks(most: number): number[] {
  const rough = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}
