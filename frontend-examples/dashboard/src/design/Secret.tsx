import { Copy } from './Copy';
import { Note } from './Note';

interface SecretProps {
  what: string;
  /** Null: the request was repeated, and its secret is told only once. */
  secret: string | null;
  advice: string;
}

/** Shown this once: it is kept nowhere, neither at the server nor here. */
export function Secret({ what, secret, advice }: SecretProps) {
  if (secret === null) {
    return <Note tone="warn" title={`The ${what} was told already.`}><p>It cannot be shown again. Make another one if it is lost.</p></Note>;
  }
  return (
    <Note tone="warn" title={`Copy the ${what} now: it is shown this once.`} action={<Copy text={secret} label={`Copy the ${what}`} />}>
      <p className="secret"><code>{secret}</code></p>
      <p>{advice}</p>
    </Note>
  );
}
