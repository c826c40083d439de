"""Large books are read without keeping everybody else waiting."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.capacity.books import PORTION, in_portions


async def test_others_have_a_turn_after_each_portion_and_no_row_is_lost() -> None:
    turns_of_others: list[int] = []
    read: list[Any] = []

    async def others() -> None:
        while True:
            turns_of_others.append(len(read))
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    rows: list[Any] = list(range(3 * PORTION + 1))
    async for row in in_portions(rows):
        read.append(row)  # noqa: PERF401 - the others look at what is read so far
    beside.cancel()
    assert read == rows
    assert turns_of_others == [PORTION, 2 * PORTION, 3 * PORTION]
