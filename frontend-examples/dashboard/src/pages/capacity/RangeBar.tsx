import { useZone } from '../../app/preferences';
import { Button } from '../../design/Button';
import { Choices } from '../../design/Field';
import { DAY, showDay } from '../../format/time';
import { LENGTHS, type Range } from './useRange';

export function RangeBar({ range }: { range: Range }) {
  const zone = useZone();
  return (
    <div className="toolbar">
      <Choices label="Show" value={range.length} choices={LENGTHS} onChoose={range.setLength} />
      <div className="toolbar-group">
        <Button aria-label="Earlier" onClick={() => range.move(-1)}>←</Button>
        <Button disabled={range.isPresent} onClick={range.toPresent}>Today</Button>
        <Button aria-label="Later" onClick={() => range.move(1)}>→</Button>
      </div>
      <span className="soft">{showDay(range.from, zone)} – {showDay(range.to - DAY / 2, zone)}</span>
    </div>
  );
}
