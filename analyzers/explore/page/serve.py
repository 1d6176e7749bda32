"""Show the web page in the browser: the function behind ``logparse explore``."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from analyzers.explore.load.reader import StoreReading
from analyzers.explore.page.address import LOOPBACK, leading_to, tunnel
from logparse.errors import LogparseError
from logparse.lazy import import_numpy

if TYPE_CHECKING:
    from analyzers.explore.page.data import Pages


@contextmanager
def _as_ctrl_c(*names: str) -> Iterator[None]:
    """Make signals such as SIGTERM end the program in the same way as Ctrl-C, so that temporary files are removed.

    A signal that is ignored (as by ``nohup``) is still ignored.
    """
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    mine = threading.current_thread() is threading.main_thread()  # Python lets no other thread set signal handlers.
    numbers = [x for x in known if mine and signal.getsignal(x) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@_as_ctrl_c("SIGTERM", "SIGHUP")
def explore(
    url: str | None = None,
    *,
    run: str | None = None,
    compare: str | None = None,
    target: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8050,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Show the web page about a Parquet folder (``url``) in the browser, until the user interrupts it.

    * ``target``: facts about the machine that will use the override files.

    Raises LogparseError if the folder or run does not exist, or if the port is in use.
    """
    facts = target or {}
    listening = _open_socket(host, port)
    # Reading starts now, while this process still imports the other modules that it needs.
    reading = StoreReading(url, run, compare, facts)
    pages: Pages | None = None
    try:
        import_numpy()
        from analyzers.explore.load.beside import find_run_to_compare
        from logparse.store import open_store

        # Without a URL, the default folder is used.
        store = open_store(url)
        store.latest_run(run)
        if compare is not None:
            find_run_to_compare(compare, store)
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={token}"
        with _redirecting(address) if browser else nullcontext() as page:
            # The browser starts while this process imports modules. Its first request waits in the socket.
            if page is not None:
                threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()
            make_server, application, pages = _server(store.url, run, compare, facts, reading)
            app = application(pages, host, port, token)
            server = make_server(host, port, app, threaded=True, fd=listening.fileno())
            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            say(f"{address}  (Ctrl-C ends it)")
            say(tunnel(port, token))
            if host not in LOOPBACK:
                say(
                    f"warning: {host} can be reached by others; everyone with this address and token can read the store"
                )
            server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        if pages is not None:
            pages.close()
        reading.close()
        listening.close()


@contextmanager
def _redirecting(address: str) -> Iterator[Path]:
    """Context manager: the path of a temporary HTML file that leads the browser to ``address``.

    Only this user can read the file.
    """
    with TemporaryDirectory(prefix="logparse-") as folder:  # The folder is made with mode 0700.
        page = Path(folder, "open.html")
        with open(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(leading_to(address))
        # ps shows the browser's command line to every user. So the command line has only the path of this file, and not
        # the token. Jupyter does the same (jupyter_server/serverapp.py, _write_browser_open_file).
        yield page


def _open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections from now on. Raises LogparseError if the port is in use."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family, backlog=128)
    except OSError as error:
        raise LogparseError(f"{host}:{port}: {error.strerror or error}; name another with --port") from None


def _server(
    url: str, run: str | None, other: str | None, target: Mapping[str, str], reading: StoreReading
) -> tuple[Callable[..., Any], Callable[..., Any], Pages]:
    from analyzers.explore.page.data import PageData, Pages

    pages = Pages(PageData(url, run, other, target, reading))
    try:
        from werkzeug.serving import make_server

        from analyzers.explore.page.app import application
    except ImportError as error:
        raise LogparseError(f"the page needs Flask ({error}): pip install 'logparse[explore]'") from None
    return make_server, application, pages
