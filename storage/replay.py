"""Remembered answers (`answer`): written by whoever flushes a command, in its transaction; removed by retention."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from domain.replay import Remembered, RequestKey
from storage.database import AnyConnection, affected


def request_columns(keys: Collection[RequestKey]) -> tuple[list[str], list[str], list[str]]:
    """As the functions take request keys: owners, operations, idempotency keys."""
    return (
        [key.owner for key in keys],
        [key.operation for key in keys],
        [key.idempotency_key for key in keys],
    )


_READ: Final = """
select a.owner, a.operation, a.idempotency_key, a.fingerprint, a.subject_id
from unnest($1::text[], $2::text[], $3::text[]) k (owner, operation, idempotency_key),
    lateral (
        select * from answer a
        where a.owner = k.owner and a.operation = k.operation and a.idempotency_key = k.idempotency_key offset 0
    ) a
"""


async def read_answers(connection: AnyConnection, keys: Iterable[RequestKey]) -> dict[RequestKey, Remembered]:
    """What is remembered under any of `keys`."""
    wanted = list(keys)
    if not wanted:
        return {}
    rows = await connection.fetch(_READ, *request_columns(wanted))
    return {
        RequestKey(row["owner"], row["operation"], row["idempotency_key"]): Remembered(
            row["fingerprint"], row["subject_id"]
        )
        for row in rows
    }


_WRITE: Final = """
insert into answer (owner, operation, idempotency_key, fingerprint, subject_id, answered_at)
values ($1, $2, $3, $4, $5, $6)
"""


async def flush_answer(connection: AnyConnection, key: RequestKey, remembered: Remembered, *, answered_at: int) -> None:
    """Remember one accepted command. A key that is taken raises a unique violation: somebody was faster."""
    values = (key.owner, key.operation, key.idempotency_key, remembered.fingerprint, remembered.subject_id)
    await connection.execute(_WRITE, *values, answered_at)


def answer_row(key: RequestKey, remembered: Remembered, *, answered_at: int) -> dict[str, Any]:
    """The row as a batch flush takes it."""
    return {
        "owner": key.owner,
        "operation": key.operation,
        "idempotency_key": key.idempotency_key,
        "fingerprint": f"\\x{remembered.fingerprint.hex()}",
        "subject_id": remembered.subject_id,
        "answered_at": answered_at,
    }


_FORGET: Final = """
delete from answer where (owner, operation, idempotency_key) in (
    select owner, operation, idempotency_key from answer
    where answered_at < $1 and operation <> all ($2::text[]) order by answered_at limit $3
)
"""


async def forget_answers(connection: AnyConnection, *, before: int, keep: Iterable[str], limit: int) -> int:
    """Forget up to `limit` answers given before an instant, except those of the operations to `keep`."""
    return affected(await connection.execute(_FORGET, before, list(keep), limit))
