import { useState } from 'react';
import { Button } from './Button';

/** Puts a text on the clipboard and says so. Where the browser does not allow it, the text can still be selected. */
export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [said, setSaid] = useState<string | null>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid('Copied');
    } catch {
      setSaid('Select it and press Ctrl+C');
    }
  };
  return <Button onClick={() => void copy()}><span aria-live="polite">{said ?? label}</span></Button>;
}
