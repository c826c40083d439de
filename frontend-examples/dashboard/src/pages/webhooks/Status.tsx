import { Badge } from '../../design/Badge';
import type { WebhookRowFragment } from '../../graphql/generated';

export function Status({ webhook: { status, isFailing, consecutiveFailures } }: { webhook: WebhookRowFragment }) {
  if (status === 'DISABLED') return <Badge tone="bad">disabled</Badge>;
  if (status === 'PAUSED') return <Badge tone="warn">paused</Badge>;
  if (consecutiveFailures > 0) return <Badge tone="bad">{consecutiveFailures} given up</Badge>;
  return isFailing ? <Badge tone="warn">failing</Badge> : <Badge tone="good">active</Badge>;
}

/** What it is told of, in short. */
export function subjectsOf({ eventTypes, eventCategories }: Pick<WebhookRowFragment, 'eventTypes' | 'eventCategories'>): string {
  const wide = eventCategories.map((category) => `all of ${category}`);
  const all = [...wide, ...eventTypes];
  return all.length > 3 ? `${all.slice(0, 3).join(', ')} and ${all.length - 3} more` : all.join(', ');
}
