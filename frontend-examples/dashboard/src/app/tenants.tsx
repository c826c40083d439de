/** Names and colours of tenants, read once for all pages. */
import { createContext, useContext, useMemo, type ReactNode } from 'react';
import { TenantNamesDocument } from '../graphql/generated';
import { useLiveQuery } from '../graphql/live';
import { useSession } from '../session/session';
import { usePlace } from './router';

export interface TenantName {
  id: string;
  name: string;
  isRoot: boolean;
}

interface Tenants {
  /** By name. Two hundred of them: beyond that a tenant is named by its id. */
  tenants: readonly TenantName[];
  nameOf: (id: string) => string;
  /** Degrees on the wheel of colours: neighbours in time of making lie far apart on it. */
  hueOf: (id: string) => number;
}

const NOTHING = {};
const GOLDEN_ANGLE = 137.508;
const FIRST_HUE = 200;

const TenantsContext = createContext<Tenants>({ tenants: [], nameOf: (id) => id, hueOf: () => FIRST_HUE });

export function TenantsProvider({ children }: { children: ReactNode }) {
  const { can } = useSession();
  const { data } = useLiveQuery({
    query: TenantNamesDocument, variables: NOTHING, isPaused: !can('tenancy:read'),
    affectedBy: ({ kind }) => kind === 'tenancy' || kind === 'anything',
  });
  const nodes = data?.tenants?.nodes;
  const value = useMemo(() => tenantsOf(nodes ?? []), [nodes]);
  return <TenantsContext value={value}>{children}</TenantsContext>;
}

export function useTenants(): Tenants {
  return useContext(TenantsContext);
}

/** The tenant that root has picked; a tenant's own key has picked itself. Null is all. */
export function useChosenTenant(): string | null {
  const { isRoot, tenantId } = useSession();
  const { search } = usePlace();
  return isRoot ? search.get('tenant') || null : tenantId;
}

function tenantsOf(newestFirst: readonly TenantName[]): Tenants {
  const names = new Map(newestFirst.map(({ id, name }) => [id, name]));
  // Counted from the oldest: a new tenant takes nobody's colour.
  const hues = new Map([...newestFirst].reverse().map(({ id }, index) => [id, hueAt(index)]));
  return {
    tenants: [...newestFirst].sort((one, other) => one.name.localeCompare(other.name)),
    nameOf: (id) => names.get(id) ?? id,
    hueOf: (id) => hues.get(id) ?? hueAt(codeOf(id)),
  };
}

function hueAt(index: number): number {
  return Math.round((FIRST_HUE + index * GOLDEN_ANGLE) % 360);
}

function codeOf(id: string): number {
  let code = 0;
  for (const character of id) code = (code * 31 + (character.codePointAt(0) ?? 0)) % 997;
  return code;
}
