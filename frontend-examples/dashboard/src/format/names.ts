/** Names that are long on the wire, short enough to read. */

/** The last part of a path-like id: h100-year of zones/us-west4-a/reservations/h100-year. */
export function lastPart(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1) || path;
}

/** rgrant_01j…4xz9: enough to tell two apart, the whole is in the title. */
export function shortId(id: string): string {
  return id.length > 20 ? `${id.slice(0, id.indexOf('_') + 5)}…${id.slice(-4)}` : id;
}

/** RESERVATION_GONE or reservation-gone as words. */
export function words(code: string): string {
  return code.toLowerCase().replaceAll(/[_-]/g, ' ');
}

export function sentence(text: string): string {
  const trimmed = text.trim();
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
