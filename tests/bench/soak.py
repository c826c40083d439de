"""`make soak` starts here. The folder of this file is no place to import from, the project's is."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests.bench.soaking import main

    sys.exit(main(sys.argv[1:]))
