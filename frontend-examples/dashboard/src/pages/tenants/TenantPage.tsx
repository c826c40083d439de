/** One tenant: its standing and its keys. */
import { useState } from 'react';
import { useNotice } from '../../app/notices';
import { Page } from '../../app/Page';
import { To } from '../../app/router';
import { useTenants } from '../../app/tenants';
import { Button } from '../../design/Button';
import { Confirm } from '../../design/Confirm';
import { ReactivateTenantDocument, SuspendTenantDocument, TenantListDocument } from '../../graphql/generated';
import { useIntent } from '../../graphql/intent';
import { useLiveQuery } from '../../graphql/live';
import { useSession } from '../../session/session';
import { Keys } from './Keys';
import { Standing } from './TenantsPage';

const FIRST = { after: null };

export default function TenantPage({ id }: { id: string }) {
  const { nameOf } = useTenants();
  const { can } = useSession();
  const [isOpen, setOpen] = useState(false);
  const { data } = useLiveQuery({ query: TenantListDocument, variables: FIRST, affectedBy: ({ kind }) => kind === 'tenancy' || kind === 'anything' });
  const tenant = data?.tenants?.nodes.find((one) => one.id === id);
  const isSuspended = tenant?.standing?.status === 'SUSPENDED';
  const isChangeable = tenant && !tenant.isRoot && tenant.standing?.status !== 'CLOSED' && can('tenancy:manage');
  return (
    <Page
      title={nameOf(id)} lead={<><code>{id}</code> {tenant && <Standing tenant={tenant} />}</>}
      actions={
        <>
          <To to={['grants']} search={{ tenant: id }} className="button button-plain">Its grants</To>
          <To to={['budgets']} search={{ tenant: id }} className="button button-plain">Its budgets</To>
          {isChangeable && <Button look={isSuspended ? 'plain' : 'danger'} onClick={() => setOpen(true)}>{isSuspended ? 'Reactivate…' : 'Suspend…'}</Button>}
        </>
      }
    >
      <Keys tenantId={id} />
      {isOpen && <StandingDialog id={id} name={nameOf(id)} isSuspended={isSuspended} onClose={() => setOpen(false)} />}
    </Page>
  );
}

interface StandingDialogProps {
  id: string;
  name: string;
  isSuspended: boolean;
  onClose: () => void;
}

function StandingDialog({ id, name, isSuspended, onClose }: StandingDialogProps) {
  const { changes } = useSession();
  const notice = useNotice();
  const [wasSuspended] = useState(isSuspended);
  const done = () => {
    notice(`${name} is ${wasSuspended ? 'active again' : 'suspended'}.`);
    changes.tell({ kind: 'tenancy' });
    onClose();
  };
  const suspend = useIntent(SuspendTenantDocument, ({ suspendTenant }) => suspendTenant, done);
  const reactivate = useIntent(ReactivateTenantDocument, ({ reactivateTenant }) => reactivateTenant, done);
  const { outcome, ask, isBusy } = wasSuspended ? reactivate : suspend;
  return (
    <Confirm
      title={wasSuspended ? `Reactivate ${name}?` : `Suspend ${name}?`} action={wasSuspended ? 'Reactivate it' : 'Suspend it'}
      isDanger={!wasSuspended} isBusy={isBusy} outcome={outcome} onClose={onClose} onConfirm={() => ask({ tenantId: id })}
    >
      <p>{wasSuspended ? 'It may hold and spend again.' : 'It can hold and debit nothing new; what is held may still be settled. Its grants stay.'}</p>
    </Confirm>
  );
}
