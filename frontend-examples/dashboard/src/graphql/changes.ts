/** What changed at the server, as far as its streams have told: whoever shows it reads it again. */

export type Change =
  | { kind: 'grant'; tenantId: string; grantId: string | null }
  | { kind: 'capacity'; id: string }
  | { kind: 'budget'; tenantId: string; scope: string | null }
  | { kind: 'tenancy' }
  | { kind: 'webhook' }
  /** The socket was lost: anything may have happened meanwhile. */
  | { kind: 'anything' };

export class Changes {
  private readonly listeners = new Set<(change: Change) => void>();

  tell(change: Change): void {
    for (const listener of this.listeners) listener(change);
  }

  listen(listener: (change: Change) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Changes come in bursts: the first is answered at once, and what comes while it is read, once more after. */
const GATHER_MS = 80;
const REST_MS = 350;

/** Runs `read` after `ask()`, never twice at a time, and once more for what was asked meanwhile. */
export class Refresher {
  private isBusy = false;
  private isWanted = false;
  private isClosed = false;

  constructor(private readonly read: () => Promise<unknown>) {}

  /** Reads at once. */
  begin(): void {
    this.isWanted = true;
    if (!this.isBusy && !this.isClosed) void this.run(0);
  }

  ask(): void {
    this.isWanted = true;
    if (!this.isBusy && !this.isClosed) void this.run(GATHER_MS);
  }

  close(): void {
    this.isClosed = true;
  }

  private async run(gather: number): Promise<void> {
    this.isBusy = true;
    if (gather > 0) await wait(gather);
    while (this.isWanted && !this.isClosed) {
      this.isWanted = false;
      await this.read();
      await wait(REST_MS);
    }
    this.isBusy = false;
  }
}

function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
