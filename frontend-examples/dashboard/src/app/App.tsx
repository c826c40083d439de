import { Provider } from 'urql';
import { Note } from '../design/Note';
import { SessionContext } from '../session/session';
import { SignIn } from '../session/SignIn';
import { useSignedIn } from '../session/useSignedIn';
import { Notices } from './notices';
import { PreferencesProvider } from './preferences';
import { Router } from './router';
import { Shell } from './Shell';

export function App() {
  return (
    <PreferencesProvider>
      <Router>
        <Notices>
          <Gate />
        </Notices>
      </Router>
    </PreferencesProvider>
  );
}

/** Nothing is shown of the server before it has taken the key. */
function Gate() {
  const { state, signIn } = useSignedIn();
  if (state.kind === 'opening') return <Opening />;
  if (state.kind === 'out') return <SignIn why={state.why} failure={state.failure} onSignIn={signIn} />;
  const { session } = state;
  return (
    <Provider value={session.link.client}>
      <SessionContext value={session}>
        <Shell />
      </SessionContext>
    </Provider>
  );
}

function Opening() {
  return <main className="sign-in"><Note tone="info" title="Signing in…" /></main>;
}
