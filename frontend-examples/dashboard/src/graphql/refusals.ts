/** The expected "no": what it means for whoever asked, and what to do about it. */
import { sentence } from '../format/names';
import type { Refused } from './live';

export interface Explained {
  title: string;
  /** What can be done. */
  advice: string;
  /** The label of the field that is wrong, if one is. */
  field: string | null;
}

/** Names of the API's fields as the forms call them. */
const LABELS: Record<string, string> = {
  grantTenantId: 'Tenant',
  tenantId: 'Tenant',
  projectId: 'Project',
  slots: 'Slots',
  startsAt: 'Starts',
  endsAt: 'Ends',
  reservationId: 'Reservation',
  accountId: 'Reservation',
  scope: 'Scope',
  unit: 'Unit',
  allocated: 'Amount',
  amount: 'Amount',
  'amount.amount': 'Amount',
  overdraftLimit: 'Overdraft limit',
  reason: 'Reason',
  name: 'Name',
  url: 'URL',
  eventTypes: 'Event types',
  eventCategories: 'Event categories',
  scopeFilter: 'Scope filter',
  permissions: 'Permissions',
  expiresAt: 'Expires',
};

const ADVICE: Record<string, string> = {
  INVALID_INPUT: 'Correct this field and send it again.',
  ACCESS_DENIED: 'This key may not do that. Sign in with one that may.',
  NOT_FOUND: 'It is gone, or this key cannot see it.',
  INVALID_STATE: 'Look at the state that it is in now: it may have changed since this page was drawn.',
  CONFLICT: 'Somebody changed it meanwhile. Close this, look at it again, and decide anew.',
  CAPACITY_UNAVAILABLE: 'Ask for fewer slots, for another term, or on another reservation.',
  BUDGET_NOT_FOUND: 'There is no such budget. It may have been made in another unit.',
  BUDGET_EXCEEDED: 'Take away less, or fund the budget first.',
  BUDGET_FROZEN: 'Unfreeze the budget first.',
  BUDGET_CLOSED: 'A closed budget stays as it is. Make another one.',
  DEBT_OUTSTANDING: 'Repay the debt first.',
  TENANT_CLOSED: 'The tenant is closed for good: nothing changes for it any more.',
  TENANT_SUSPENDED: 'Reactivate the tenant first.',
  RESERVATION_FINALIZED: 'It was settled meanwhile: there is nothing left to release.',
  RESERVATION_EXPIRED: 'It expired meanwhile, and what it held is free again.',
  IDEMPOTENCY_MISMATCH: 'Close this and begin anew: the first attempt asked for something else.',
  DUPLICATE_RESOURCE: 'It is there already. Use that one.',
  LIMIT_EXCEEDED: 'Wait a moment, then try again.',
  WEBHOOK_URL_INVALID: 'Nothing may be delivered to that address. Use a public https URL.',
  REPLAY_IN_PROGRESS: 'A replay of this webhook is under way. Wait until it is through.',
};

export function explain(refusal: Refused): Explained {
  const field = refusal.field ? labelOf(refusal.field) : null;
  const said = refusal.field ? refusal.message.replaceAll(refusal.field, labelOf(refusal.field)) : refusal.message;
  return { title: sentence(said), advice: ADVICE[refusal.code] ?? 'Change what was asked for, and try again.', field };
}

function labelOf(field: string): string {
  return LABELS[field] ?? LABELS[field.split('.')[0] ?? ''] ?? field;
}

/** What is wrong with one field, to be shown right below it. */
export function problemOf(refusal: Refused | null | undefined, ...fields: string[]): string | null {
  if (!refusal?.field) return null;
  const first = refusal.field.split('.')[0] ?? '';
  return fields.includes(first) ? explain(refusal).title : null;
}
