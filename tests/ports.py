"""Ports that stay free until the server that a test starts takes them."""

from __future__ import annotations

import socket


def reserved_port() -> int:
    """A port of 127.0.0.1 that nobody is given while this process lives, and that a server may listen at any time.

    The socket stays bound and never listens: the system hands its port to nobody who asks for any, neither to listen
    nor to connect from, while a server that names it and allows reuse, as ours and PostgreSQL do, gets it.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    holder.detach()  # until the process ends
    return port
