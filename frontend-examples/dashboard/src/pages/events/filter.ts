/** Which events are shown, and what all of them are about. */
import type { Happening } from '../../session/eventLog';

export interface EventFilter {
  tenantId: string | null;
  /** The beginning of a type, such as reservation-grant. */
  kind: string;
  /** Part of the type, the scope or any id: a request's, a trace's, a correlation's, a grant's. */
  about: string;
}

export const KINDS = [
  { value: '', label: 'All' },
  { value: 'reservation-grant.', label: 'Grants' },
  { value: 'budget.', label: 'Budgets' },
  { value: 'reservation.', label: 'Holds' },
  { value: 'tenant.', label: 'Tenants' },
] as const;

export function isShown(event: Happening, { tenantId, kind, about }: EventFilter): boolean {
  if (tenantId && event.tenantId !== tenantId) return false;
  if (kind && !event.type.startsWith(kind)) return false;
  return !about || textsOf(event).some((text) => text?.includes(about));
}

function textsOf({ id, type, scope, grantId, correlationId, requestId, traceId }: Happening): (string | null)[] {
  return [type, scope, grantId, correlationId, requestId, traceId, id];
}

/** What ties events together: what one request or one cascade brought about. */
export function tieOf({ correlationId, traceId, requestId }: Happening): string | null {
  return correlationId ?? traceId ?? requestId;
}
