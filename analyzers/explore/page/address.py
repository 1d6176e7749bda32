"""Where the page is served, and how to see it from elsewhere."""

from __future__ import annotations

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def tunnel(port: int) -> str:
    """How to see the page from another machine."""
    return f"From another machine: ssh -N -L {port}:127.0.0.1:{port} USER@THIS-HOST, then open http://127.0.0.1:{port}/"
