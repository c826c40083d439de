import type { ReactNode } from 'react';

export function Facts({ children }: { children: ReactNode }) {
  return <dl className="facts">{children}</dl>;
}

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

/** A number to be seen first. */
export function Figure({ name, value, note, tone }: { name: string; value: ReactNode; note?: ReactNode; tone?: 'warn' | 'bad' | undefined }) {
  return (
    <div className="figure" data-tone={tone}>
      <dt>{name}</dt>
      <dd>{value}{note && <span className="figure-note">{note}</span>}</dd>
    </div>
  );
}
