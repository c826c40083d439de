import { Badge, type Tone } from '../../design/Badge';
import type { GrantState } from '../../graphql/generated';

const TONES: Record<GrantState, Tone> = { ACTIVE: 'good', SCHEDULED: 'info', ENDED: 'neutral', CANCELLED: 'neutral' };

export function State({ state }: { state: GrantState }) {
  return <Badge tone={TONES[state]}>{state.toLowerCase()}</Badge>;
}
