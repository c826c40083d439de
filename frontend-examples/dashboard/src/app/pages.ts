/** The pages, who sees them, and what is loaded for them. */
import { lazy, type ComponentType } from 'react';
import type { Session } from '../session/session';

export interface PageEntry {
  path: string;
  name: string;
  /** What a tenant's own key calls it, where that differs. */
  ownName?: string;
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
  {
    path: 'budgets',
    name: 'Budgets',
    isFor: ({ can }) => can('budgets:read'),
    page: lazy(() => import('../pages/budgets/BudgetsPage')),
  },
  {
    path: 'holds',
    name: 'Budget reservations',
    isFor: ({ can }) => can('reservations:list'),
    page: lazy(() => import('../pages/holds/HoldsPage')),
  },
  {
    path: 'events',
    name: 'Events',
    isFor: ({ can }) => can('compute:quotas:read') || can('events:read'),
    page: lazy(() => import('../pages/events/EventsPage')),
  },
  {
    path: 'webhooks',
    name: 'Webhooks',
    isFor: ({ can }) => can('webhooks:read'),
    page: lazy(() => import('../pages/webhooks/WebhooksPage')),
    detail: lazy(() => import('../pages/webhooks/WebhookPage')),
  },
  {
    path: 'tenants',
    name: 'Tenants and keys',
    ownName: 'API keys',
    isFor: ({ can }) => can('tenancy:read'),
    page: lazy(() => import('../pages/tenants/TenantsPage')),
    detail: lazy(() => import('../pages/tenants/TenantPage')),
  },
];

export function pagesFor(session: Session): PageEntry[] {
  return PAGES.filter(({ isFor }) => isFor(session));
}
