interface MeterProps {
  /** Shares from 0 to 1, from left to right, each with its look. */
  parts: readonly { look: string; share: number }[];
  /** The same in words. */
  label: string;
}

/** A thin bar in a table row. */
export function Meter({ parts, label }: MeterProps) {
  return (
    <span className="meter" role="img" aria-label={label} title={label}>
      {parts.map(({ look, share }) => share > 0 && <span key={look} className={`part-${look}`} style={{ width: `${share * 100}%` }} />)}
    </span>
  );
}
