/** Short words about what was just done, at the edge of the screen and for screen readers. */
import { createContext, useCallback, useContext, useState, type ReactNode } from 'react';
import { Button } from '../design/Button';

interface Notice {
  id: number;
  text: ReactNode;
}

const SHOWN_MS = 8_000;
const NoticesContext = createContext<(text: ReactNode) => void>(() => {});
let count = 0;

export function useNotice(): (text: ReactNode) => void {
  return useContext(NoticesContext);
}

export function Notices({ children }: { children: ReactNode }) {
  const [notices, setNotices] = useState<readonly Notice[]>([]);
  const remove = useCallback((id: number) => setNotices((all) => all.filter((notice) => notice.id !== id)), []);
  const add = useCallback((text: ReactNode) => {
    const id = ++count;
    setNotices((all) => [...all.slice(-2), { id, text }]);
    setTimeout(() => remove(id), SHOWN_MS);
  }, [remove]);
  return (
    <NoticesContext value={add}>
      {children}
      <div className="notices" role="status">
        {notices.map(({ id, text }) => (
          <div key={id} className="notice">
            <span>{text}</span>
            <Button look="quiet" aria-label="Dismiss" onClick={() => remove(id)}>✕</Button>
          </div>
        ))}
      </div>
    </NoticesContext>
  );
}
