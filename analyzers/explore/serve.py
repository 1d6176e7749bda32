"""Serving the page: one call that the program makes."""

from __future__ import annotations

import logging
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzers.explore.address import LOOPBACK, tunnel
from analyzers.explore.reading import Reading
from logparse.errors import LogparseError

if TYPE_CHECKING:
    from analyzers.explore.board import Board


def explore(
    url: str | None = None,
    *,
    run: str | None = None,
    compare: str | None = None,
    target: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 8050,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page of a store until interrupted.  Raises LogparseError where there is none, or for a taken port.

    ``url``: default as of ``logparse.store.open_store``;
    ``target``: words of ``analyzers.target.target_from``, the machine that will read the overrides.
    """
    facts = _facts(target)
    reading = Reading(url, run, compare, facts)  # while this process still imports all that it needs
    try:
        from logparse.store import open_store

        store = open_store(url)
        store.latest_run(run)
        make_server, application, board = _server(store.url, run, compare, facts, reading)
        try:
            server = make_server(host, port, application(board, host, port).server, threaded=True)
        except OSError as error:
            raise LogparseError(f"{host}:{port}: {error.strerror or error}; name another with --port") from None
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
        reading.close()


def _facts(target: Sequence[str]) -> Mapping[str, str]:
    if not target:
        return {}
    from analyzers.target import target_from
    from logparse.formats import FORMATS

    return target_from(target, FORMATS)


def _server(
    url: str, run: str | None, other: str | None, target: Mapping[str, str], reading: Reading
) -> tuple[Callable[..., Any], Callable[..., Any], Board]:
    from analyzers.explore.board import Board

    board = Board(url, run, other, target, reading)
    try:
        from werkzeug.serving import make_server

        from analyzers.explore.app import application
    except ImportError as error:
        raise LogparseError(f"the page needs Dash ({error}): pip install 'logparse[explore]'") from None
    return make_server, application, board
