/** What happens, as it happens; what happened before this tab was opened is read on demand. */
import { useEffect, useState, useSyncExternalStore } from 'react';
import { Page } from '../../app/Page';
import { useSearchWord } from '../../app/router';
import { useChosenTenant } from '../../app/tenants';
import { Button } from '../../design/Button';
import { Choices, TextField } from '../../design/Field';
import { Empty, FailureNote } from '../../design/Note';
import { plural } from '../../format/slots';
import { useSession } from '../../session/session';
import { EventTable } from './EventTable';
import { isShown, KINDS, type EventFilter } from './filter';
import { History } from './History';

type Kind = (typeof KINDS)[number]['value'];

export default function EventsPage() {
  const { events: log, isRoot } = useSession();
  const tenantId = useChosenTenant();
  const [kindWord, setKind] = useSearchWord('kind');
  const [about, setAbout] = useSearchWord('about');
  const kind = KINDS.find(({ value }) => value === kindWord)?.value ?? '';
  const filter: EventFilter = { tenantId: isRoot ? tenantId : null, kind, about };
  const { events, failure } = useSyncExternalStore(log.listen, log.state);
  const { shown: kept, isPaused, toggle } = usePause(events);
  const shown = kept.filter((event) => isShown(event, filter)).reverse();
  const missed = isPaused ? events.length - kept.length : 0;
  return (
    <Page
      title="Events" lead="Grants, budgets, holds and tenants, live. After a lost connection the stream goes on where it was."
      actions={<Button aria-pressed={isPaused} onClick={toggle}>{isPaused ? `Go on${missed > 0 ? ` (${missed} new)` : ''}` : 'Pause'}</Button>}
    >
      <div className="toolbar">
        <Choices<Kind> label="About" value={kind} choices={KINDS} onChoose={setKind} />
        <TextField label="With this word or id" type="search" value={about} onChange={(event) => setAbout(event.target.value)} />
      </div>
      {failure && <FailureNote failure={failure} />}
      <section className="panel" aria-labelledby="live-events">
        <header className="panel-head">
          <h2 id="live-events">Since this tab was opened</h2>
          <span className="soft small push">{isPaused ? 'paused' : plural(shown.length, 'event')}</span>
        </header>
        {shown.length > 0
          ? <EventTable isLive events={shown} caption="Events since this tab was opened, the newest first" onTie={setAbout} />
          : <Empty title={about || kind ? 'Nothing of this kind yet.' : 'Nothing has happened yet.'}><p>It appears here the moment it does. What happened earlier is below.</p></Empty>}
      </section>
      <History filter={filter} onTie={setAbout} />
    </Page>
  );
}

/** While it is paused, what is shown stands still; nothing is lost meanwhile. */
function usePause<Event>(events: readonly Event[]) {
  const [held, setHeld] = useState<readonly Event[] | null>(null);
  const isPaused = held !== null;
  const toggle = () => setHeld(isPaused ? null : events);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof HTMLElement && event.target.closest('input, select, textarea');
      if (event.key === 'p' && !isTyping && !event.ctrlKey && !event.metaKey) setHeld((now) => (now ? null : events));
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [events]);
  return { shown: held ?? events, isPaused, toggle };
}
