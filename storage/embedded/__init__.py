"""The PostgreSQL that Earmark runs by itself when it is given no other.

`server` starts, shares and stops it; `directory` makes and checks its data directory; `binaries` finds its programs;
`account` says who runs it. All of it blocks: call it before the event loop runs, or in a thread.
"""

from storage.embedded.account import EmbeddedPostgresError
from storage.embedded.server import Credentials, EmbeddedPostgres

__all__ = ["Credentials", "EmbeddedPostgres", "EmbeddedPostgresError"]
