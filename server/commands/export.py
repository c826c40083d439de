"""`earmark export-schema`: the GraphQL contract as text."""

from __future__ import annotations

import argparse


def run(given: argparse.Namespace) -> int:
    from schema.root import sdl  # noqa: PLC0415 - building the schema takes a while

    text = sdl()
    if given.output is None:
        print(text, end="")
    else:
        given.output.write_text(text)
    return 0
