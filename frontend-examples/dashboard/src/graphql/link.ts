/** The way to the server that one API key opens: queries and mutations over HTTP, streams over one WebSocket. */
import { createClient, type Client as SocketClient } from 'graphql-ws/client';
import { Client, cacheExchange, fetchExchange } from 'urql';
import { noteServerTime } from './clock';

export type LinkState = 'idle' | 'connecting' | 'live' | 'lost';

const ADDRESS = '/graphql';
/** The server's word for a key that is not valid. */
const FORBIDDEN = 4403;
const WAIT_MS = 250;
const WAIT_MOST_MS = 8_000;
const KEEP_ALIVE_MS = 12_000;
const PONG_WITHIN_MS = 6_000;
/** A socket stays open this long after its last stream, so that changing pages does not reconnect. */
const LINGER_MS = 3_000;

export class Link {
  readonly client: Client;
  readonly socket: SocketClient;
  private current: LinkState = 'idle';
  private readonly listeners = new Set<() => void>();
  private pongTimer: ReturnType<typeof setTimeout> | undefined;

  /** `onRejected` is called when the server no longer takes the key. */
  constructor(key: string, private readonly onRejected: () => unknown) {
    this.client = new Client({
      url: ADDRESS,
      preferGetMethod: false,
      exchanges: [cacheExchange, fetchExchange],
      fetchOptions: { headers: { authorization: `Bearer ${key}` } },
      fetch: (input, init) => this.fetch(input, init),
    });
    this.socket = createClient({
      url: new URL(ADDRESS, location.href).href.replace(/^http/, 'ws'),
      connectionParams: { apiKey: key },
      lazy: true,
      lazyCloseTimeout: LINGER_MS,
      keepAlive: KEEP_ALIVE_MS,
      retryAttempts: Number.POSITIVE_INFINITY,
      retryWait: (retries) => pause(waitFor(retries)),
      shouldRetry: (reason) => codeOf(reason) !== FORBIDDEN,
    });
    this.watch();
  }

  readonly state = (): LinkState => this.current;

  readonly listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  close(): void {
    clearTimeout(this.pongTimer);
    void this.socket.dispose();
    this.listeners.clear();
  }

  reject(): void {
    this.onRejected();
  }

  private async fetch(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
    const response = await fetch(input, { ...init, credentials: 'omit' });
    noteServerTime(response);
    if (response.status === 401) this.reject();
    return response;
  }

  private watch(): void {
    this.socket.on('connecting', (isRetry) => this.become(isRetry ? 'lost' : 'connecting'));
    this.socket.on('connected', () => this.become('live'));
    this.socket.on('closed', (event) => {
      clearTimeout(this.pongTimer);
      const code = codeOf(event);
      this.become(code === 1000 ? 'idle' : 'lost');
      if (code === FORBIDDEN) this.reject();
    });
    // A network that vanished without a word leaves the socket open: a ping that nobody answers closes it.
    this.socket.on('ping', (received) => {
      if (!received) this.pongTimer = setTimeout(() => this.socket.terminate(), PONG_WITHIN_MS);
    });
    this.socket.on('pong', (received) => {
      if (received) clearTimeout(this.pongTimer);
    });
  }

  private become(state: LinkState): void {
    this.current = state;
    for (const listener of this.listeners) listener();
  }
}

/** Doubling, with chance in it: a thousand dashboards do not come back in the same instant. */
export function waitFor(failures: number): number {
  return Math.min(WAIT_MOST_MS, WAIT_MS * 2 ** failures) * (0.5 + Math.random() / 2);
}

/** Ends early when there is reason to hope: the network is back, or somebody looks at the page again. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      window.removeEventListener('online', finish);
      document.removeEventListener('visibilitychange', look);
      resolve();
    };
    const look = () => document.visibilityState === 'visible' && finish();
    const timer = setTimeout(finish, ms);
    window.addEventListener('online', finish);
    document.addEventListener('visibilitychange', look);
  });
}

export function codeOf(reason: unknown): number | undefined {
  if (typeof reason !== 'object' || reason === null || !('code' in reason)) return undefined;
  return typeof reason.code === 'number' ? reason.code : undefined;
}

