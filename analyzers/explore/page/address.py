"""Where the page is served, and how to see it from elsewhere."""

from __future__ import annotations

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def tunnel(port: int, token: str = "") -> str:
    """How to see the page from another machine; without the token for places that are not the user's terminal."""
    address = f"http://127.0.0.1:{port}/" + (f"?token={token}" if token else "")
    return f"From another machine: ssh -N -L {port}:127.0.0.1:{port} USER@THIS-HOST, then open {address}"
