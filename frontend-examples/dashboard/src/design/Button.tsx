import type { ButtonHTMLAttributes } from 'react';

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: 'plain' | 'main' | 'danger' | 'quiet';
  isBusy?: boolean;
}

/** Says by itself that it is working. While it is, it takes no second click but keeps the focus. */
export function Button({ look = 'plain', isBusy = false, type = 'button', className = '', onClick, ...rest }: ButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      className={`button button-${look} ${className}`}
      aria-disabled={isBusy || undefined}
      data-busy={isBusy || undefined}
      onClick={(event) => {
        if (isBusy) event.preventDefault();
        else onClick?.(event);
      }}
    />
  );
}
