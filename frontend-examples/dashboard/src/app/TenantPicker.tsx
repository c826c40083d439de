import { useTenants } from './tenants';
import { useSearchWord } from './router';

/** For root: whose things are shown. The choice is part of the address and is kept from page to page. */
export function TenantPicker() {
  const { tenants } = useTenants();
  const [chosen, choose] = useSearchWord('tenant');
  const isKnown = !chosen || tenants.some(({ id }) => id === chosen);
  return (
    <label className="tenant-picker">
      <span className="hidden-text">Tenant</span>
      <select value={chosen} onChange={(event) => choose(event.target.value)}>
        <option value="">All tenants</option>
        {!isKnown && <option value={chosen}>{chosen}</option>}
        {tenants.filter(({ isRoot }) => !isRoot).map(({ id, name }) => <option key={id} value={id}>{name}</option>)}
      </select>
    </label>
  );
}
