import type { ReactNode } from 'react';
import type { Outcome } from '../graphql/live';
import { Button } from './Button';
import { Dialog } from './Dialog';
import { NotDone } from './Outcome';

interface ConfirmProps {
  title: string;
  /** What the button does, in a word or two. */
  action: string;
  isDanger?: boolean;
  isBusy: boolean;
  outcome: Outcome<unknown> | null;
  onConfirm: () => void;
  onClose: () => void;
  /** What will happen, and fields where something is to be said. */
  children: ReactNode;
}

/** Nothing that ends, changes or spends happens on the first click. */
export function Confirm({ title, action, isDanger = false, isBusy, outcome, onConfirm, onClose, children }: ConfirmProps) {
  return (
    <Dialog title={title} onClose={onClose}>
      <form className="form" onSubmit={(event) => { event.preventDefault(); onConfirm(); }}>
        {children}
        <NotDone outcome={outcome} />
        <div className="form-end">
          <Button onClick={onClose}>Leave it</Button>
          <Button type="submit" look={isDanger ? 'danger' : 'main'} isBusy={isBusy}>{action}</Button>
        </div>
      </form>
    </Dialog>
  );
}
