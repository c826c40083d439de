import { useSearchWord } from '../app/router';
import { group } from '../format/amounts';
import { Button } from './Button';

interface PagerProps {
  shown: number;
  total: number | null | undefined;
  what: string;
  page: { hasNextPage: boolean; endCursor?: string | null | undefined };
}

/** Where a list goes on; the place in it is part of the address. */
export function Pager({ shown, total, what, page }: PagerProps) {
  const [after, setAfter] = useSearchWord('after');
  if (!after && !page.hasNextPage) return null;
  return (
    <div className="toolbar">
      {after && <Button onClick={() => setAfter('')}>Back to the first</Button>}
      {page.hasNextPage && page.endCursor && <Button onClick={() => setAfter(page.endCursor ?? '')}>Next {what}</Button>}
      {total != null && <span className="soft">{group(shown)} of {group(total)} {what}</span>}
    </div>
  );
}
