import { useZone } from '../../app/preferences';
import { useTenants } from '../../app/tenants';
import { SelectField, TextField } from '../../design/Field';
import { fromField, toField } from '../../format/time';
import { FitProjectsDocument } from '../../graphql/generated';
import { useLiveQuery } from '../../graphql/live';
import { durationOf, LENGTH_UNITS, wholeOf, type LengthUnit, type Wish } from './fits';

interface FitFormProps {
  wish: Wish;
  onChange: (part: Partial<Wish>) => void;
}

export function FitForm({ wish, onChange }: FitFormProps) {
  const zone = useZone();
  const { tenants } = useTenants();
  const projects = useProjects(wish.tenantId);
  const choices = tenants.filter(({ isRoot }) => !isRoot).map(({ id, name }) => ({ value: id, label: name }));
  return (
    <div className="fields">
      <SelectField
        label="Tenant" value={wish.tenantId} choices={[{ value: '', label: 'Choose…' }, ...choices]}
        onChange={(event) => onChange({ tenantId: event.target.value, projectId: '' })}
      />
      <SelectField
        label="Project" value={wish.projectId} disabled={!wish.tenantId}
        choices={[{ value: '', label: 'Any of the tenant’s' }, ...projects]}
        onChange={(event) => onChange({ projectId: event.target.value })}
      />
      <TextField
        label="Slots" inputMode="numeric" value={wish.slots} problem={wholeOf(wish.slots) ? null : 'A whole number from 1 on.'}
        onChange={(event) => onChange({ slots: event.target.value })}
      />
      <TextField
        label="For" inputMode="numeric" value={wish.length} problem={durationOf(wish) ? null : 'A whole number from 1 on.'}
        onChange={(event) => onChange({ length: event.target.value })}
      />
      <SelectField
        label="Unit of time" value={wish.unit} choices={LENGTH_UNITS}
        onChange={(event) => onChange({ unit: event.target.value as LengthUnit })}
      />
      <TextField
        label={`Not before${zone === 'utc' ? ' (UTC)' : ''}`} type="datetime-local" hint="Empty: from now on."
        value={wish.notBefore === null ? '' : toField(wish.notBefore, zone)}
        onChange={(event) => onChange({ notBefore: fromField(event.target.value, zone) })}
      />
    </div>
  );
}

function useProjects(tenantId: string): { value: string; label: string }[] {
  const { data } = useLiveQuery({
    query: FitProjectsDocument, variables: { tenantId }, affectedBy: () => false, isPaused: !tenantId,
  });
  return (data?.projects?.nodes ?? []).map(({ id, name }) => ({ value: id, label: name }));
}
