import { useState, type FormEvent } from 'react';
import { Button } from '../design/Button';
import { TextField } from '../design/Field';
import { FailureNote, Note } from '../design/Note';
import type { Failure } from '../graphql/failures';

interface SignInProps {
  why?: string | undefined;
  failure?: Failure | undefined;
  onSignIn: (key: string) => void;
}

export function SignIn({ why, failure, onSignIn }: SignInProps) {
  const [key, setKey] = useState('');
  const [problem, setProblem] = useState<string | null>(null);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const given = key.trim();
    if (given) onSignIn(given);
    else setProblem('Paste an API key first.');
  };
  return (
    <main className="sign-in" id="content">
      <form className="panel sign-in-form" onSubmit={submit}>
        <img src="/dashboard/favicon.svg" alt="" width="40" height="40" />
        <h1>Earmark</h1>
        <p className="lead">Capacity committed to tenants, and budget held before it is spent.</p>
        {why && <Note tone="warn" title={why} />}
        {failure && <FailureNote failure={failure} />}
        <TextField
          label="API key" type="password" name="key" value={key} autoFocus spellCheck={false} problem={problem}
          hint="It is kept in this tab only, until the tab is closed. A root key shows every tenant, a tenant’s key its own."
          onChange={(event) => { setKey(event.target.value); setProblem(null); }}
        />
        <Button type="submit" look="main">Sign in</Button>
      </form>
    </main>
  );
}
