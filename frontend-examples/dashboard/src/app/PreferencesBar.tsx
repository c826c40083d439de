import { Button } from '../design/Button';
import { usePreferences, type Theme } from './preferences';

const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
const SIGN: Record<Theme, string> = { system: '◐', light: '○', dark: '●' };

export function PreferencesBar() {
  const { theme, setTheme, zone, setZone } = usePreferences();
  const other = zone === 'local' ? 'UTC' : 'local time';
  return (
    <span className="preferences">
      <Button look="quiet" title={`Show times in ${other}`} onClick={() => setZone(zone === 'local' ? 'utc' : 'local')}>
        <span className="hidden-text">Times: </span>{zone === 'local' ? 'Local' : 'UTC'}
      </Button>
      <Button look="quiet" title={`Colours: ${theme}`} onClick={() => setTheme(NEXT[theme])}>
        <span aria-hidden="true">{SIGN[theme]}</span><span className="hidden-text">Colours: {theme}</span>
      </Button>
    </span>
  );
}
