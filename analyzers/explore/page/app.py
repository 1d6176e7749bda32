"""The web server of ``logparse explore``: a Flask app that answers only this machine.

The URL contains the whole state of the page. A click on anything gives a new URL, and the whole page is drawn again
from that URL. Nothing is loaded from another host, because Content-Security-Policy forbids it. Only requests that name
this host are answered, so that a foreign page cannot reach the server through a host name of its own (DNS rebinding).
"""

from __future__ import annotations

import re
from importlib.resources import files as resources
from secrets import compare_digest
from typing import Any
from urllib.parse import urlencode

from flask import Flask, Response, abort, request, send_file

from analyzers.explore.page.address import LOOPBACK, leading_to, tunnel
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.frame import ASSETS, frame
from analyzers.explore.page.parts import FILES_URL, PARTS, TABLE_URL, as_json
from analyzers.explore.page.table import export
from analyzers.explore.selection import from_url
from logparse.quoting import Html, asset


def application(page: PageData | Pages, host: str = "127.0.0.1", port: int = 8050, token: str = "") -> Flask:
    """Return the Flask app that serves the web page.

    * ``host``: requests to another host name are refused.
    * ``token``: if set, a request needs it in the URL (``?token=``), later ones in a cookie.
    """
    app = Flask(__name__, static_folder=None)
    pages = page if isinstance(page, Pages) else Pages(page)
    # The names of this machine (LOOPBACK) are also accepted.
    _guard(app, host, token, port)
    _assets(app, pages, port)
    _parts(app, pages)
    return app


_FILES_S = 120.0
"""How many seconds a click on the download may wait until the files are written."""

_STYLE = Html('<link rel="stylesheet" href="/assets/explore.css">')
# The script fetches plotly.js when a chart is to be drawn, or else when all data are there. The overview needs none.
_SCRIPTS = Html('<script src="/assets/explore.js"></script>')
_TYPES = {"css": "text/css", "js": "text/javascript"}


def _assets(app: Flask, pages: Pages, port: int) -> None:
    """Make the app serve the page's HTML, its style, its script and plotly.js."""

    @app.route("/")
    def index() -> Response:
        data = {"live": True, "table": TABLE_URL, "plotly": "/assets/plotly.min.js"}
        made = frame("logparse", pages.first.url, tunnel(port), data, policy=Html(), style=_STYLE, scripts=_SCRIPTS)
        return Response(made.data, mimetype="text/html")

    @app.route("/assets/<name>")
    def file(name: str) -> Response:
        if name == "plotly.min.js":
            text = asset(resources("plotly") / "package_data" / name)
        elif name in ("explore.css", "explore.js"):
            text = asset(ASSETS / name)
        else:
            abort(404)
        answer = Response(text, mimetype=_TYPES[name.rpartition(".")[2]])
        answer.headers["Cache-Control"] = "max-age=3600" if name == "plotly.min.js" else "no-cache"
        return answer


def _guard(app: Flask, host: str, token: str, port: int) -> None:
    """Refuse requests from other sites or without the token, and forbid the page to load anything from elsewhere."""
    names = set(LOOPBACK) | {host}
    policy = (
        # Scripts come from this host only. They may use Function ('unsafe-eval'), because Plotly's WebGL needs it to
        # make its drawing functions. Otherwise plotly.js 4 reports that WebGL is not supported. Another build of
        # plotly.js needs no Function, but it is not in the Python package.
        "default-src 'self'; script-src 'self' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )

    @app.before_request
    def same_host() -> None:
        name = re.sub(r":\d+\Z", "", request.headers.get("Host", "")).strip("[]").lower()
        if name not in names:
            abort(Response("This server answers only requests to the host name with which it was started.\n", 403))
        # The origin must have the same host and port. Through a tunnel, both are the tunnel's.
        origin = request.headers.get("Origin")
        foreign = origin and re.sub(r"\Ahttps?://", "", origin).lower() != request.headers["Host"].lower()
        linked = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if foreign or (request.headers.get("Sec-Fetch-Site") == "cross-site" and not linked):
            abort(Response("The server does not answer requests that come from other sites.\n", 403))

    cookie = f"logparse-{port}"

    @app.before_request
    def known() -> Response | None:
        given = request.args.get("token", "")
        if not token or compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            return None
        if request.method != "GET" or not compare_digest(given.encode(), token.encode()):
            return Response("Open the whole address that logparse printed, because it contains a token.\n", 403)
        rest = urlencode([(x, y) for x, y in request.args.items(multi=True) if x != "token"])
        # A redirect would not work: the browser comes from a file, and on a redirect of another site's link it would
        # keep the strict cookie back. The page's own link belongs to this site.
        answer = Response(leading_to(f"/{request.path.lstrip('/')}{'?' * bool(rest)}{rest}"), mimetype="text/html")
        answer.set_cookie(cookie, token, httponly=True, samesite="Strict")
        return answer

    @app.after_request
    def closed(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def _parts(app: Flask, pages: Pages) -> None:
    @app.route("/part/<name>", methods=["POST"])
    def part(name: str) -> Response:
        asked = request.get_json(silent=True)
        if name not in PARTS or not isinstance(asked, dict):
            abort(404)
        return Response(as_json(PARTS[name](pages, asked)), mimetype="application/json")

    @app.route(TABLE_URL)
    def table() -> Response:
        headers = {"Content-Disposition": "attachment; filename=logparse-problems.csv"}
        text = export(pages, request.query_string.decode("utf-8", "replace"))
        return Response(text, mimetype="text/csv", headers=headers)

    @app.route(FILES_URL)
    def files() -> Any:
        page = pages.of(from_url(request.query_string.decode("utf-8", "replace")))
        if page.files is None or not page.wait(_FILES_S) or page.files is None:
            return abort(404)
        return send_file(page.files, "application/zip", as_attachment=True)
