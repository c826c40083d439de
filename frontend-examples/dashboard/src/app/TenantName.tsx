import type { CSSProperties } from 'react';
import { useTenants } from './tenants';

/** A tenant by its name, with the colour that it has in the charts. */
export function TenantName({ id }: { id: string }) {
  const { nameOf, hueOf } = useTenants();
  return (
    <span className="hued tenant-name" title={id} style={{ '--hue': hueOf(id) } as CSSProperties}>{nameOf(id)}</span>
  );
}
