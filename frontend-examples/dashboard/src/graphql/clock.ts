/** The server decides by its own clock: a browser whose clock is wrong must not draw "now" elsewhere. */

/** A Date header has whole seconds and the answer was under way: less than this is no difference. */
const TOLERANCE_MS = 3_000;

let offset = 0;

export function noteServerTime(response: Response): void {
  const said = Date.parse(response.headers.get('date') ?? '');
  if (Number.isNaN(said)) return;
  const difference = said - Date.now();
  offset = Math.abs(difference) > TOLERANCE_MS ? difference : 0;
}

export function serverNow(): number {
  return Date.now() + offset;
}
