import { addressOf, followLink } from '../app/router';
import { showSlots } from '../format/slots';
import { showUtc } from '../format/time';
import type { GrantState } from '../graphql/generated';
import type { Box } from './Frame';
import type { Lanes } from './lanes';

export interface DrawnGrant {
  id: string;
  tenantId: string;
  state: GrantState;
  slots: number;
  startsAt: number;
  endsAt: number;
  idle: number;
}

interface GrantBlockProps {
  grant: DrawnGrant;
  lanes: readonly Lanes[];
  x: (at: number) => number;
  y: (slots: number) => number;
  box: Box;
  name: string;
  hue: number;
  isGhost: boolean;
}

/** Pixels that a label needs at least, and a letter of it. */
const LABEL_LEAST = 44;
const LABEL_HEIGHT = 15;
const LETTER = 6.4;

export function GrantBlock({ grant, lanes, x, y, box, name, hue, isGhost }: GrantBlockProps) {
  const left = Math.max(box.left, x(grant.startsAt));
  const right = Math.min(box.right, x(grant.endsAt));
  if (right <= box.left || left >= box.right) return null;
  const width = Math.max(2, right - left - 1);
  const largest = lanes.reduce<Lanes | null>((best, one) => (!best || one.top - one.bottom > best.top - best.bottom ? one : best), null);
  const blocks = lanes.map(({ bottom, top }) => ({ bottom, top: y(top), height: Math.max(2, y(bottom) - y(top) - 1) }));
  const said = `${showSlots(grant.slots)} to ${name}, ${grant.state.toLowerCase()}, from ${showUtc(grant.startsAt)} until ${showUtc(grant.endsAt)}`;
  const look = { className: `hued block block-${isGhost ? 'ghost' : grant.state.toLowerCase()}`, style: { '--hue': hue } as React.CSSProperties };
  const drawn = (
    <>
      <title>{said}</title>
      {blocks.map(({ bottom, top, height }) => <rect key={bottom} x={left} y={top} width={width} height={height} rx="3" />)}
    </>
  );
  const address = addressOf(['grants', grant.id]);
  return (
    <>
      {isGhost
        ? <g {...look}>{drawn}</g>
        : <a {...look} href={address} aria-label={said} onClick={(event) => followLink(event, address)}>{drawn}</a>}
      {largest && (
        <g {...look} aria-hidden="true">
          <Label text={`${name} · ${grant.slots}`} x={left} width={width} top={y(largest.top)} height={y(largest.bottom) - y(largest.top)} />
        </g>
      )}
    </>
  );
}

function Label({ text, x, width, top, height }: { text: string; x: number; width: number; top: number; height: number }) {
  if (width < LABEL_LEAST || height < LABEL_HEIGHT) return null;
  const letters = Math.floor((width - 12) / LETTER);
  const shown = text.length > letters ? `${text.slice(0, Math.max(1, letters - 1))}…` : text;
  return <text x={x + 6} y={top + Math.min(height / 2 + 4, 16)}>{shown}</text>;
}
