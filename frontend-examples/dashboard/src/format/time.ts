/** Instants are epoch milliseconds. They are shown in the viewer's zone, or in UTC when that is asked for. */

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

export type Zone = 'local' | 'utc';

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: Zone, name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${zone}/${name}`;
  let known = formats.get(key);
  if (!known) {
    known = new Intl.DateTimeFormat('en-GB', zone === 'utc' ? { ...options, timeZone: 'UTC' } : options);
    formats.set(key, known);
  }
  return known;
}

/** 30 Nov 2026, 14:05 */
export function showInstant(at: number, zone: Zone): string {
  return format(zone, 'instant', {
    day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', hour12: false,
  }).format(at);
}

/** 14:05:09 */
export function showClock(at: number, zone: Zone): string {
  return format(zone, 'clock', { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false }).format(at);
}

/** 14:05 */
export function showMinute(at: number, zone: Zone): string {
  return format(zone, 'minute', { hour: '2-digit', minute: '2-digit', hour12: false }).format(at);
}

/** Mon 30 Nov */
export function showDay(at: number, zone: Zone): string {
  return format(zone, 'day', { weekday: 'short', day: 'numeric', month: 'short' }).format(at);
}

/** 2026-11-30 14:05:09 UTC */
export function showUtc(at: number): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** The two largest parts of a duration: 2 d 4 h. */
export function showDuration(ms: number): string {
  const parts: [number, string][] = [[DAY, 'd'], [HOUR, 'h'], [MINUTE, 'min'], [1000, 's']];
  const shown: string[] = [];
  let rest = Math.abs(ms);
  for (const [size, word] of parts) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) shown.push(`${count} ${word}`);
    else if (shown.length > 0) break;
    if (shown.length === 2) break;
  }
  return shown.join(' ') || 'under 1 s';
}

/** in 3 h, 5 min ago, now: one part is enough beside the instant itself. */
export function showRelative(at: number, now: number): string {
  const away = at - now;
  if (Math.abs(away) < 5_000) return 'now';
  const [size, word] =
    Math.abs(away) >= 2 * DAY ? [DAY, 'd'] as const
    : Math.abs(away) >= HOUR ? [HOUR, 'h'] as const
    : Math.abs(away) >= MINUTE ? [MINUTE, 'min'] as const
    : [1000, 's'] as const;
  const count = Math.round(Math.abs(away) / size);
  return away > 0 ? `in ${count} ${word}` : `${count} ${word} ago`;
}

/** For an <input type="datetime-local">: 2026-11-30T14:05. */
export function toField(at: number, zone: Zone): string {
  const shift = zone === 'utc' ? 0 : new Date(at).getTimezoneOffset() * MINUTE;
  return new Date(at - shift).toISOString().slice(0, 16);
}

/** The instant in such a field; null while it is empty or half typed. */
export function fromField(text: string, zone: Zone): number | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text)) return null;
  const at = Date.parse(zone === 'utc' ? `${text}Z` : text);
  return Number.isNaN(at) ? null : at;
}

/** The start of the day that an instant is in. */
export function startOfDay(at: number, zone: Zone): number {
  const date = new Date(at);
  if (zone === 'utc') return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate());
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}
