"""Serving the page: one call that the program makes."""

from __future__ import annotations

import logging
import threading
import webbrowser
from collections.abc import Callable
from typing import Any

from analyzers.explore.board import Board
from logparse.errors import LogparseError
from logparse.store import open_store

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def explore(
    url: str,
    *,
    run: str | None = None,
    compare: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8050,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page of a store until interrupted.  Raises StoreError where there is none, OSError for a taken port."""
    open_store(url).latest_run(run)
    board = Board(url, run, compare)  # reads while Dash is imported
    try:
        make_server, application = _server()
        server = make_server(host, port, application(board, host, port).server, threaded=True)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        address = f"http://{f'[{host}]' if ':' in host else host}:{server.port}/"
        say(f"{address}  (Ctrl-C ends it)")
        say(tunnel(server.port))
        if host not in LOOPBACK:
            say(f"warning: {host} can be reached by others, who can then read the whole store; there is no password")
        if browser:
            threading.Timer(0.2, webbrowser.open, [address]).start()
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        board.close()


def _server() -> tuple[Callable[..., Any], Callable[..., Any]]:
    try:
        from werkzeug.serving import make_server

        from analyzers.explore.app import application
    except ImportError as error:
        raise LogparseError(f"the page needs Dash ({error}): pip install 'logparse[explore]'") from None
    return make_server, application


def tunnel(port: int) -> str:
    """How to see the page from another machine."""
    return f"From another machine: ssh -N -L {port}:127.0.0.1:{port} USER@THIS-HOST, then open http://127.0.0.1:{port}/"
