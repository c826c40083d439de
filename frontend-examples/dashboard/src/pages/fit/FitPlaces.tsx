import { Button } from '../../design/Button';
import { Instant } from '../../design/Instant';
import { Empty, FailureNote, Waiting } from '../../design/Note';
import { Table, type Column } from '../../design/Table';
import { lastPart } from '../../format/names';
import { showSlots } from '../../format/slots';
import { showDuration } from '../../format/time';
import { FitPlacesDocument } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { inOrder, type Choice, type Fit, type Place } from './fits';

interface FitPlacesProps {
  slots: number;
  durationMs: number;
  notBefore: number;
  onChoose: (choice: Choice) => void;
}

interface Row {
  place: Place;
  fit: Fit;
}

export function FitPlaces({ slots, durationMs, notBefore, onChoose }: FitPlacesProps) {
  const { data, failure, refresh } = useLiveQuery({
    query: FitPlacesDocument, variables: { slots, durationMs, notBefore },
    affectedBy: ({ kind }) => kind === 'capacity' || kind === 'anything',
  });
  if (!data) return failure ? <FailureNote failure={failure} onRetry={refresh} /> : <Waiting what="where it fits" />;
  const places = inOrder(data.capacityReservations?.nodes ?? []);
  if (places.length === 0) return <NoRoom slots={slots} durationMs={durationMs} />;
  const rows = places.flatMap((place) => (place.earliestFit ?? []).map((fit) => ({ place, fit })));
  return <Table caption="Where it fits, the earliest first" columns={columnsFor(onChoose)} rows={rows} keyOf={keyOf} />;
}

function keyOf({ place, fit }: Row): string {
  return `${place.id} ${fit.startsAt}`;
}

function columnsFor(onChoose: (choice: Choice) => void): Column<Row>[] {
  return [
    { name: 'On', cell: ({ place }) => <><b>{lastPart(place.reservationId)}</b> <span className="soft">{place.flavor} · {place.region}</span></> },
    { name: 'Starts', cell: ({ fit }) => <Instant at={fit.startsAt} relative /> },
    { name: 'Or as late as', cell: ({ fit }) => <Latest fit={fit} /> },
    {
      name: 'Choose',
      isNumber: true,
      cell: ({ place, fit }) => (
        <Button onClick={() => onChoose({ place, startsAt: fit.startsAt, endsAt: fit.endsAt })}>
          Plan<span className="hidden-text"> on {lastPart(place.reservationId)}</span>
        </Button>
      ),
    },
  ];
}

/** Room that does not end is told as an instant decades away. */
const FAR_MS = 5 * 365 * 86_400_000;

function Latest({ fit }: { fit: Fit }) {
  return fit.latestStartAt - fit.startsAt > FAR_MS ? <span className="soft">any later time</span> : <Instant at={fit.latestStartAt} />;
}

function NoRoom({ slots, durationMs }: { slots: number; durationMs: number }) {
  return (
    <Empty title={`${showSlots(slots)} for ${showDuration(durationMs)} fit nowhere.`}>
      <p>Ask for fewer slots or a shorter time, or have a reservation enlarged. Reservations in no pool take no grants.</p>
    </Empty>
  );
}
