/** How somebody likes to look at things. Kept in this browser; the key is not among it. */
import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from 'react';
import type { Zone } from '../format/time';

export type Theme = 'system' | 'light' | 'dark';

interface Preferences {
  theme: Theme;
  setTheme: (theme: Theme) => void;
  zone: Zone;
  setZone: (zone: Zone) => void;
}

const nothing = () => {};
const PreferencesContext = createContext<Preferences>({
  theme: 'system', setTheme: nothing, zone: 'local', setZone: nothing,
});

export function PreferencesProvider({ children }: { children: ReactNode }) {
  const [theme, setTheme] = useKept<Theme>('earmark.theme', ['system', 'light', 'dark']);
  const [zone, setZone] = useKept<Zone>('earmark.zone', ['local', 'utc']);
  useEffect(() => {
    if (theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
  }, [theme]);
  const value = useMemo(() => ({ theme, setTheme, zone, setZone }), [theme, setTheme, zone, setZone]);
  return <PreferencesContext value={value}>{children}</PreferencesContext>;
}

export function usePreferences(): Preferences {
  return useContext(PreferencesContext);
}

export function useZone(): Zone {
  return usePreferences().zone;
}

/** A choice that is still there at the next visit. The first one is the default. */
function useKept<Choice extends string>(name: string, choices: readonly [Choice, ...Choice[]]) {
  const [value, setValue] = useState<Choice>(() => {
    const kept = read(name);
    return choices.find((choice) => choice === kept) ?? choices[0];
  });
  useEffect(() => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // Storage is switched off: the choice lasts until the page is left.
    }
  }, [name, value]);
  return [value, setValue] as const;
}

function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}
