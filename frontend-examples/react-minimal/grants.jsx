// A tenant's grants, live, in one file: what is there comes by a query, what changes by a subscription, over one WebSocket.
// No polling, and no gap: the cursor to watch from is taken before the list is read.
import { useEffect, useReducer, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { createClient } from 'graphql-ws';

const CURSOR = /* GraphQL */ `query Cursor { eventsCursor }`;
const GRANTS = /* GraphQL */ `query Grants($after: String) {
  grants(first: 200, after: $after) {
    nodes { id version state slots held running startsAt endsAt }
    pageInfo { hasNextPage endCursor }
  }
}`;
const GRANT = /* GraphQL */ `query Grant($id: ID!) {
  grant(id: $id) { id version state slots held running startsAt endsAt }
}`;
const EVENTS = /* GraphQL */ `subscription Events($after: String!) {
  grantEvents(after: $after) { grantId }
}`;
const PAUSE_MS = 1_000;
const REFUSED = new Set([4403, 'UNAUTHENTICATED', 'ACCESS_DENIED']); // 4403: how the WebSocket is closed

/** One operation that is answered once. */
async function ask(client, query, variables) {
  for await (const { data, errors } of client.iterate({ query, variables })) {
    if (errors) throw Object.assign(new Error(errors[0].message), errors[0].extensions);
    return data;
  }
  throw new Error('the connection was closed');
}

/** Tell `show` of every grant, then of each that changed, until `signal` says stop. After an interruption from the start. */
async function follow(client, show, tell, signal) {
  while (!signal.aborted) {
    try {
      const { eventsCursor } = await ask(client, CURSOR); // before the list: what happens meanwhile is then told of twice,
      await list(client, show); //                           and never not at all
      const changes = client.iterate({ query: EVENTS, variables: { after: eventsCursor } });
      tell('live');
      for await (const { data, errors } of changes) {
        if (errors) throw Object.assign(new Error(errors[0].message), errors[0].extensions);
        const { grant } = await ask(client, GRANT, { id: data.grantEvents.grantId });
        if (grant) show([grant]);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (REFUSED.has(error.code)) return tell('this key is not accepted');
    }
    tell('reconnecting');
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function list(client, show) {
  for (let page = { hasNextPage: true, endCursor: null }; page.hasNextPage; ) {
    const { grants } = await ask(client, GRANTS, { after: page.endCursor });
    show(grants.nodes);
    page = grants.pageInfo;
  }
}

/** Grants by id; an answer that was overtaken by a newer one is passed over. */
function merge(known, grants) {
  const next = new Map(known);
  for (const grant of grants) {
    if (!(next.get(grant.id)?.version > grant.version)) next.set(grant.id, grant);
  }
  return next;
}

function Grants({ url, apiKey }) {
  const [grants, show] = useReducer(merge, new Map());
  const [state, tell] = useState('connecting');
  useEffect(() => {
    const stop = new AbortController();
    const client = createClient({ url, connectionParams: { apiKey }, retryAttempts: 0 });
    follow(client, show, tell, stop.signal);
    return () => (stop.abort(), client.dispose());
  }, [url, apiKey]);
  const newestFirst = [...grants.values()].sort((one, other) => (one.id < other.id ? 1 : -1));
  return (
    <>
      <p role="status">{state}</p>
      <table>
        <thead><tr>{['Grant', 'State', 'Slots', 'Held', 'From', 'Until'].map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
        <tbody>
          {newestFirst.map((grant) => (
            <tr key={grant.id}>
              <td>{grant.id}</td>
              <td>{grant.state.toLowerCase()}</td>
              <td>{grant.slots}</td>
              <td>{grant.held}</td>
              <td>{new Date(grant.startsAt).toLocaleString()}</td>
              <td>{new Date(grant.endsAt).toLocaleString()}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {state === 'live' && grants.size === 0 && <p>No grants yet.</p>}
    </>
  );
}

function App() {
  const [signedIn, signIn] = useState(null);
  if (signedIn) return <main><h1>Grants</h1><Grants {...signedIn} /></main>;
  return (
    <form onSubmit={(event) => (event.preventDefault(), signIn(Object.fromEntries(new FormData(event.target))))}>
      <h1>Grants</h1>
      <label>Server <input name="url" size="40" defaultValue="ws://127.0.0.1:7878/graphql" required /></label>{' '}
      <label>Key of a tenant <input name="apiKey" type="password" required /></label>{' '}
      <button>Watch</button>
    </form>
  );
}

createRoot(document.getElementById('root')).render(<App />);
