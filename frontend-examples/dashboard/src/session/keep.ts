/** The API key lives in this tab's session storage and nowhere else. The IDE at / finds it under the same name. */

const NAME = 'earmark.key';

export function keptKey(): string | null {
  try {
    return sessionStorage.getItem(NAME) || null;
  } catch {
    return null; // storage is switched off: the key lasts until the page is left
  }
}

export function keepKey(key: string | null): void {
  try {
    if (key) sessionStorage.setItem(NAME, key);
    else sessionStorage.removeItem(NAME);
  } catch {
    // As above.
  }
}
