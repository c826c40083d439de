import { useEffect, useRef, type ReactNode } from 'react';

interface PageProps {
  title: string;
  /** One line below the title. */
  lead?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

/** Coming to a page moves the focus to its heading, so that a screen reader tells where it is. */
export function Page({ title, lead, actions, children }: PageProps) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · Earmark`;
  }, [title]);
  useEffect(() => {
    if (document.activeElement === document.body || document.activeElement?.closest('nav')) {
      heading.current?.focus({ preventScroll: true });
    }
    window.scrollTo(0, 0);
  }, []);
  return (
    <main className="page" id="content">
      <header className="page-head">
        <div>
          <h1 ref={heading} tabIndex={-1}>{title}</h1>
          {lead && <p className="lead">{lead}</p>}
        </div>
        {actions && <div className="page-actions">{actions}</div>}
      </header>
      {children}
    </main>
  );
}
