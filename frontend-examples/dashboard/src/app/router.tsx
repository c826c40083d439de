/** Addresses below /dashboard. Every view has one, so it can be kept, sent and gone back to. */
import { createContext, useContext, useMemo, useSyncExternalStore, type MouseEvent, type ReactNode } from 'react';

const BASE = '/dashboard';
/** Chosen once, kept on every page. */
const STICKY = 'tenant';

export interface Place {
  /** The parts of the path behind /dashboard, decoded. */
  parts: string[];
  search: URLSearchParams;
}

const PlaceContext = createContext<Place>({ parts: [], search: new URLSearchParams() });
const CHANGED = 'earmark:place';

export function Router({ children }: { children: ReactNode }) {
  const address = useSyncExternalStore(listen, () => location.pathname + location.search);
  const place = useMemo(() => placeOf(address), [address]);
  return <PlaceContext value={place}>{children}</PlaceContext>;
}

export function usePlace(): Place {
  return useContext(PlaceContext);
}

/** One word of the address's query and how to change it. */
export function useSearchWord(name: string): [string, (value: string) => void] {
  const { search } = usePlace();
  const set = (value: string) => {
    const changed = new URLSearchParams(location.search);
    if (value) changed.set(name, value);
    else changed.delete(name);
    move(location.pathname + queryOf(changed), true);
  };
  return [search.get(name) ?? '', set];
}

export function go(parts: string[], search: Record<string, string> = {}, options: { replace?: boolean } = {}): void {
  move(addressOf(parts, search), options.replace ?? false);
}

export function addressOf(parts: string[], search: Record<string, string> = {}): string {
  const query = new URLSearchParams(Object.entries(search).filter(([, value]) => value));
  const kept = new URLSearchParams(location.search).get(STICKY);
  if (kept && !(STICKY in search)) query.set(STICKY, kept);
  return [BASE, ...parts.map(encodeURIComponent)].join('/') + queryOf(query);
}

interface LinkProps {
  to: string[];
  search?: Record<string, string>;
  className?: string;
  isCurrent?: boolean;
  children: ReactNode;
}

export function To({ to, search, className, isCurrent, children }: LinkProps) {
  const address = addressOf(to, search);
  return (
    <a href={address} className={className} aria-current={isCurrent ? 'page' : undefined} onClick={(event) => followLink(event, address)}>
      {children}
    </a>
  );
}

/** A plain click stays on the page; with a key held down the browser does what it always does. */
export function followLink(event: MouseEvent, address: string): void {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  move(address, false);
}

function move(address: string, replace: boolean): void {
  if (address === location.pathname + location.search) return;
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  window.dispatchEvent(new Event(CHANGED));
}

function listen(listener: () => void): () => void {
  window.addEventListener('popstate', listener);
  window.addEventListener(CHANGED, listener);
  return () => {
    window.removeEventListener('popstate', listener);
    window.removeEventListener(CHANGED, listener);
  };
}

function placeOf(address: string): Place {
  const url = new URL(address, location.origin);
  const parts = url.pathname.slice(BASE.length).split('/').filter(Boolean).map(decoded);
  return { parts, search: url.searchParams };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function queryOf(search: URLSearchParams): string {
  const text = search.toString();
  return text ? `?${text}` : '';
}
