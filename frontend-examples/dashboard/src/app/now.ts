/** The server's present, as something to look at: it moves on by itself. */
import { useEffect, useState } from 'react';
import { serverNow } from '../graphql/clock';

export function useNow(everyMs = 15_000): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
