/** The frame around every page: where one can go, whose things are shown, and whether the stream is live. */
import { Suspense, useEffect } from 'react';
import { Button } from '../design/Button';
import { Empty, Waiting } from '../design/Note';
import { useSession } from '../session/session';
import { LiveState } from './LiveState';
import { Page } from './Page';
import { pagesFor } from './pages';
import { PreferencesBar } from './PreferencesBar';
import { go, To, usePlace } from './router';
import { TenantPicker } from './TenantPicker';
import { TenantsProvider } from './tenants';

export function Shell() {
  const session = useSession();
  const pages = pagesFor(session);
  const { parts } = usePlace();
  const [first] = pages;
  useEffect(() => {
    if (parts.length === 0 && first) go([first.path], {}, { replace: true });
  }, [parts.length, first]);
  useEffect(() => {
    // On a narrow screen the pages are a strip that is longer than the screen.
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [parts[0]]);
  return (
    <TenantsProvider>
      <a className="skip" href="#content">Skip to the content</a>
      <div className="shell">
        <header className="bar">
          <To to={[]} className="brand"><img src="/dashboard/favicon.svg" alt="" width="24" height="24" /><span>Earmark</span></To>
          <nav aria-label="Pages">
            <ul>
              {pages.map(({ path, name, ownName }) => (
                <li key={path}><To to={[path]} isCurrent={parts[0] === path}>{session.isRoot ? name : ownName ?? name}</To></li>
              ))}
            </ul>
          </nav>
          <div className="bar-end">
            {session.isRoot && <TenantPicker />}
            <LiveState />
            <PreferencesBar />
            <Who />
          </div>
        </header>
        <Suspense fallback={<main className="page" id="content"><Waiting what="the page" /></main>}>
          <Current />
        </Suspense>
      </div>
    </TenantsProvider>
  );
}

function Who() {
  const { viewer, signOut } = useSession();
  return (
    <span className="who">
      <span className="who-name" title={`Key ${viewer.apiKey.name} (${viewer.apiKey.prefix}…)`}>{viewer.tenant.name}</span>
      <Button look="quiet" onClick={() => signOut()}>Sign out</Button>
    </span>
  );
}

function Current() {
  const session = useSession();
  const { parts } = usePlace();
  const [path, ...rest] = parts;
  const entry = pagesFor(session).find((page) => page.path === path);
  if (!path) return null;
  if (!entry) return <NothingHere />;
  if (rest.length === 0) return <entry.page />;
  const id = rest.join('/');
  return entry.detail ? <entry.detail key={id} id={id} /> : <NothingHere />;
}

function NothingHere() {
  return (
    <Page title="Nothing here">
      <Empty title="This address shows nothing to this key.">
        <p>It may be mistyped, or need a permission that the key lacks. Choose a page above.</p>
      </Empty>
    </Page>
  );
}
