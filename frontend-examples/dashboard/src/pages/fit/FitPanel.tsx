/** From "so many slots for so long" to a grant: where it fits, what it would do, then the grant itself. */
import { useEffect, useState } from 'react';
import { serverNow } from '../../graphql/clock';
import { useChosenTenant } from '../../app/tenants';
import { Button } from '../../design/Button';
import { FitForm } from './FitForm';
import { FitPlan } from './FitPlan';
import { FitPlaces } from './FitPlaces';
import { durationOf, wholeOf, type Choice, type Ghost, type Wish } from './fits';

interface FitPanelProps {
  onGhost: (ghost: Ghost | null) => void;
  onClose: () => void;
}

export function FitPanel({ onGhost, onClose }: FitPanelProps) {
  const [wish, setWish] = useState<Wish>({
    tenantId: useChosenTenant() ?? '', projectId: '', slots: '4', length: '7', unit: 'days', notBefore: null,
  });
  const [openedAt] = useState(serverNow);
  const [choice, setChoice] = useState<Choice | null>(null);
  const slots = wholeOf(wish.slots);
  const durationMs = durationOf(wish);
  useEffect(() => {
    onGhost(choice && slots ? { capacityId: choice.place.id, startsAt: choice.startsAt, endsAt: choice.endsAt, slots } : null);
  }, [onGhost, choice, slots]);
  const change = (part: Partial<Wish>) => {
    setWish({ ...wish, ...part });
    if ('length' in part || 'unit' in part || 'notBefore' in part) setChoice(null);
  };
  return (
    <section className="panel" aria-labelledby="fit-title">
      <header className="panel-head">
        <h2 id="fit-title">Find room for a grant</h2>
        <Button className="push" look="quiet" aria-label="Close the search for room" onClick={onClose}>✕</Button>
        <p className="soft">Say how much for how long: the earliest places are found, and nothing is granted before you confirm.</p>
      </header>
      <FitForm wish={wish} onChange={change} />
      {slots && durationMs && (
        choice
          ? <FitPlan choice={choice} wish={wish} slots={slots} onChoose={setChoice} onDone={onClose} />
          : <FitPlaces slots={slots} durationMs={durationMs} notBefore={wish.notBefore ?? openedAt} onChoose={setChoice} />
      )}
    </section>
  );
}
