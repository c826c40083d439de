import { GrantCapacityDocument } from '../../graphql/generated';
import { useStream } from '../../graphql/live';
import { useSession } from '../../session/session';

/** Draws nothing: tells the page when instances start or stop on a capacity reservation, which root may follow. */
export function FollowCapacity({ accountId, reservationId }: { accountId: string; reservationId: string }) {
  const { changes } = useSession();
  const id = `${accountId}/${reservationId}`;
  useStream({
    document: GrantCapacityDocument,
    variables: { id },
    onValue: ({ capacityReservationChanged: told }) => changes.tell({ kind: 'capacity', id: told.id }),
  }, id);
  return null;
}
