/** The pages, who sees them, and what is loaded for them. */
import { lazy, type ComponentType } from 'react';
import type { Session } from '../session/session';

export interface PageEntry {
  path: string;
  name: string;
  isFor: (session: Session) => boolean;
  page: ComponentType;
  /** What a deeper address shows, such as one grant. */
  detail?: ComponentType<{ id: string }>;
}

export const PAGES: readonly PageEntry[] = [
  {
    path: 'capacity',
    name: 'Capacity',
    isFor: ({ isRoot, can }) => isRoot && can('compute:providers:manage'),
    page: lazy(() => import('../pages/capacity/CapacityPage')),
  },
  {
    path: 'grants',
    name: 'Grants',
    isFor: ({ can }) => can('compute:quotas:read'),
    page: lazy(() => import('../pages/grants/GrantsPage')),
    detail: lazy(() => import('../pages/grants/GrantPage')),
  },
];

export function pagesFor(session: Session): PageEntry[] {
  return PAGES.filter(({ isFor }) => isFor(session));
}
