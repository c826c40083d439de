import { useEffect, useId, useRef, type ReactNode } from 'react';
import { Button } from './Button';

/** Where somebody begins: at the first field, or at the button that does nothing. */
const BEGINS = '.form input, .form select, .form-end .button';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
}

/** The browser's own modal dialog: it keeps the focus inside, closes on Escape and gives the focus back. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>(BEGINS)?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      className="dialog"
      aria-labelledby={id}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => event.target === element.current && onClose()}
    >
      <div className="dialog-inside">
        <header className="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button look="quiet" aria-label="Close" onClick={onClose}>✕</Button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
