// The public GraphQL-over-HTTP audits against EARMARK_URL, as the holder of EARMARK_KEY. One JSON object for each.
import { serverAudits } from 'graphql-http';

const key = process.env.EARMARK_KEY;
const fetchWithKey = (url, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${key}`);
  return fetch(url, { ...init, headers });
};

for (const audit of serverAudits({ url: process.env.EARMARK_URL, fetchFn: fetchWithKey })) {
  const { status, reason } = await audit.fn();
  console.log(JSON.stringify({ id: audit.id, name: audit.name, status, reason: reason ? String(reason) : null }));
}
