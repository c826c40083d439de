// One operation through a public client, as EARMARK_WANTED describes it:
//   { transport: "ws" | "sse", url, key?, parameters?, query, variables?, take? }
// Prints a line of JSON for each result, and one for how it ended. `take`: leave after so many results.
import { createClient as createSocket } from 'graphql-ws';
import { createClient as createEventSource } from 'graphql-sse';
import WebSocket from 'ws';

const wanted = JSON.parse(process.env.EARMARK_WANTED);
const say = (line) => console.log(JSON.stringify(line));

const clients = {
  ws: () =>
    createSocket({
      url: wanted.url,
      webSocketImpl: WebSocket,
      retryAttempts: 0,
      connectionParams: wanted.parameters,
      on: { closed: (event) => say({ closed: event.code ?? null, reason: event.reason ?? String(event) }) },
    }),
  sse: () =>
    createEventSource({
      url: wanted.url,
      retryAttempts: 0,
      headers: wanted.key ? { authorization: `Bearer ${wanted.key}` } : {},
    }),
};

const client = clients[wanted.transport]();
let taken = 0;
await new Promise((resolve) => {
  const leave = client.subscribe(
    { query: wanted.query, variables: wanted.variables },
    {
      next: (result) => {
        say({ next: result });
        taken += 1;
        if (taken === wanted.take) leave();
      },
      error: (error) => {
        const told = Array.isArray(error) ? error.map((one) => ({ ...one })) : (error.code ?? error.message ?? String(error));
        say({ error: told, status: error.response?.status ?? null });
        resolve();
      },
      complete: () => {
        say({ complete: true });
        resolve();
      },
    },
  );
});
await client.dispose();
