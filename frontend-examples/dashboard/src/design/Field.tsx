import { useId, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes } from 'react';

interface Around {
  label: string;
  hint?: ReactNode;
  /** What is wrong with what was entered. */
  problem?: string | null | undefined;
}

type TextFieldProps = Around & InputHTMLAttributes<HTMLInputElement>;

export function TextField({ label, hint, problem, ...input }: TextFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} autoComplete="off" {...input} {...description(id, hint, problem)} />
      <Below id={id} hint={hint} problem={problem} />
    </div>
  );
}

interface Choice {
  value: string;
  label: string;
}

type SelectFieldProps = Around & SelectHTMLAttributes<HTMLSelectElement> & { choices: readonly Choice[] };

export function SelectField({ label, hint, problem, choices, ...select }: SelectFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} {...select} {...description(id, hint, problem)}>
        {choices.map(({ value, label: shown }) => <option key={value} value={value}>{shown}</option>)}
      </select>
      <Below id={id} hint={hint} problem={problem} />
    </div>
  );
}

function description(id: string, hint: ReactNode, problem: string | null | undefined) {
  if (problem) return { 'aria-invalid': true, 'aria-describedby': `${id}-problem` };
  return hint ? { 'aria-describedby': `${id}-hint` } : {};
}

function Below({ id, hint, problem }: { id: string; hint: ReactNode; problem: string | null | undefined }) {
  if (problem) return <p className="field-problem" id={`${id}-problem`}>{problem}</p>;
  return hint ? <p className="field-hint" id={`${id}-hint`}>{hint}</p> : null;
}

interface ChoicesProps<Value extends string> {
  label: string;
  value: Value;
  choices: readonly { value: Value; label: string }[];
  onChoose: (value: Value) => void;
}

/** A few choices side by side, as radio buttons: arrow keys go through them. */
export function Choices<Value extends string>({ label, value, choices, onChoose }: ChoicesProps<Value>) {
  const name = useId();
  return (
    <fieldset className="choices">
      <legend>{label}</legend>
      <div className="choices-row">
        {choices.map((choice) => (
          <label key={choice.value}>
            <input type="radio" name={name} checked={choice.value === value} onChange={() => onChoose(choice.value)} />
            <span>{choice.label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
