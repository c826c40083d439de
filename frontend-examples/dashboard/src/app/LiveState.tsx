import { useSyncExternalStore } from 'react';
import type { LinkState } from '../graphql/link';
import { useSession } from '../session/session';

const SAID: Record<LinkState, { word: string; title: string }> = {
  idle: { word: 'Idle', title: 'Nothing on this page is streamed.' },
  connecting: { word: 'Connecting', title: 'The stream is being opened.' },
  live: { word: 'Live', title: 'Changes are shown as they happen.' },
  lost: { word: 'Reconnecting', title: 'The stream was lost. It goes on after the last event that was seen, without a gap.' },
};

export function LiveState() {
  const { link } = useSession();
  const state = useSyncExternalStore(link.listen, link.state);
  const { word, title } = SAID[state];
  return <span className="live" data-state={state} title={title} role="status">{word}</span>;
}
