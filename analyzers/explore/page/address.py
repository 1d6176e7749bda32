"""The address of the web page, and how to open the page from another machine."""

from __future__ import annotations

from logparse.quoting import Html, fill_template, html_text

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def tunnel(port: int, token: str = "") -> str:
    """Return instructions for opening the web page from another machine through ssh.

    ``token`` is omitted if the text is shown outside the user's terminal.
    """
    address = f"http://127.0.0.1:{port}/" + (f"?token={token}" if token else "")
    return f"From another machine: ssh -N -L {port}:127.0.0.1:{port} USER@THIS-HOST, then open {address}"


_LEADING = Html(
    '<!doctype html>\n<meta charset="utf-8"><title>logparse</title>\n'
    '<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url=@address@">\n'
)


def leading_to(address: str) -> Html:
    """Return an HTML page that redirects to an address at once."""
    return fill_template(_LEADING, {"address": html_text(address)}, "@@")
