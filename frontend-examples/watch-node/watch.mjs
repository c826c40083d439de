// Watch what happens to a tenant's grants, and miss nothing: not while the network is away, not while the server restarts.
//
//     npm install
//     EARMARK_KEY=emk_... node watch.mjs ws://127.0.0.1:7878/graphql
//
// Each event has a cursor. It is written to a file, so the next start goes on right after the last event that was printed.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { createClient } from 'graphql-ws';
import WebSocket from 'ws';

const [url] = process.argv.slice(2);
const key = process.env.EARMARK_KEY;
if (!url || !key) {
  console.error('usage: EARMARK_KEY=emk_... node watch.mjs ws://127.0.0.1:7878/graphql');
  process.exit(1);
}

const query = readFileSync(new URL('watch.graphql', import.meta.url), 'utf8');
const bookmark = process.env.EARMARK_BOOKMARK ?? 'watch.cursor';
const REFUSED = new Set(['UNAUTHENTICATED', 'ACCESS_DENIED', 'INVALID_INPUT']);
const PAUSE_LEAST_MS = 250;
const PAUSE_MOST_MS = 10_000;
const FORBIDDEN = 4403;

// A lost connection ends the subscription: it must begin again after the bookmark, which a blind retry would not.
const client = createClient({
  url,
  webSocketImpl: WebSocket,
  connectionParams: { apiKey: key },
  retryAttempts: 0,
  lazyCloseTimeout: 0,
});

async function watch() {
  let wait = PAUSE_LEAST_MS;
  for (;;) {
    const after = existsSync(bookmark) ? readFileSync(bookmark, 'utf8') : null;
    try {
      for await (const { data, errors } of client.iterate({ query, variables: { after } })) {
        if (errors) {
          interrupted(errors[0]);
          break;
        }
        const event = data.grantEvents;
        console.log(event.seq, event.type, event.grantId, event.slots);
        writeFileSync(bookmark, event.cursor);
        wait = PAUSE_LEAST_MS;
      }
    } catch (error) {
      if (Array.isArray(error)) interrupted(error[0]);
      else if (error.code === FORBIDDEN) refused('the key is not accepted');
      else console.error('away:', error.reason || error.message || error.type); // the network, or a restart
    }
    await pause(wait);
    wait = Math.min(PAUSE_MOST_MS, wait * 2);
  }
}

function interrupted({ message, extensions = {} }) {
  if (REFUSED.has(extensions.code)) refused(message);
  // The server says where to go on, also when the bookmark has expired.
  if (extensions.cursor) writeFileSync(bookmark, extensions.cursor);
  console.error('interrupted:', extensions.code ?? message);
}

function refused(why) {
  console.error('refused:', why);
  process.exit(1);
}

process.on('SIGINT', () => process.exit(0));
await watch();
