"""Make the page in the browser: a Dash app on the loopback interface.

The URL holds the state.  A click on anything gives a new URL, and the whole page is drawn again from that URL.  Nothing
is loaded from another host, because Content-Security-Policy forbids it.  Only requests that name this host are
answered, so that a foreign page cannot reach the server through a host name of its own (DNS rebinding).
"""

from __future__ import annotations

import re
from secrets import compare_digest
from typing import Any
from urllib.parse import urlencode

from dash import ClientsideFunction, Dash, Input, Output, State
from flask import Response, abort, request, send_file

from analyzers.explore.page import components
from analyzers.explore.page.address import LOOPBACK, leading_to, tunnel
from analyzers.explore.page.data import PageData, Pages
from analyzers.explore.page.parts import FILES_URL, PARTS, TABLE_URL, as_json
from analyzers.explore.page.table import export
from analyzers.explore.selection import from_url


def application(page: PageData | Pages, host: str = "127.0.0.1", port: int = 8050, token: str = "") -> Dash:
    """Return the app of a page.

    Requests are refused if their ``Host`` is neither ``host`` nor a name of this machine.  With a ``token``, only
    requests with this token are answered.  The first request has the token in the URL (``?token=``), later requests
    have it in a cookie.
    """
    app = Dash(
        __name__, title="logparse explore", update_title="", serve_locally=True, suppress_callback_exceptions=True
    )
    pages = page if isinstance(page, Pages) else Pages(page)
    first = pages.first
    app.layout = lambda: components.layout(first.url, tunnel(port), TABLE_URL, first.version)
    app.index_string = _INDEX
    _navigation(app)
    _parts(app, pages)
    _guard(app, host, token, port)
    return app


_FILES_S = 120.0
"""Seconds that a click on the download waits until the files are written."""


# The two large scripts are fetched at once. Otherwise Dash fetches the grid's script only when the table is to be
# drawn.
_INDEX = """<!DOCTYPE html>
<html lang="en"><head>{%metas%}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title><link rel="icon" href="data:,">
<script defer src="/_dash-component-suites/plotly/package_data/plotly.min.js"></script>
<link rel="preload" as="script" href="/_dash-component-suites/dash_ag_grid/async-community.js">
{%css%}</head>
<body>{%app_entry%}<footer class="hidden">{%config%}{%scripts%}{%renderer%}</footer></body></html>"""


def _guard(app: Dash, host: str, token: str, port: int) -> None:
    """Answer only requests that name this host and know the token, and let pages load nothing from elsewhere.

    'unsafe-eval' is needed because Plotly's WebGL makes its drawing functions with ``Function``.  Without
    'unsafe-eval', plotly.js 4 reports WebGL as not supported.  The bundle that works without it is not in the Python
    package.  Scripts come from this host only.
    """
    names = set(LOOPBACK) | {host}
    # The policy has the hashes of the inline scripts known so far, so this function must be called last.
    scripts = " ".join(app.csp_hashes())
    policy = (
        f"default-src 'self'; script-src 'self' 'unsafe-eval' {scripts}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )

    @app.server.before_request  # type: ignore[untyped-decorator]
    def same_host() -> None:
        name = re.sub(r":\d+\Z", "", request.headers.get("Host", "")).strip("[]").lower()
        if name not in names:
            abort(Response("This server answers only to the host name it was started for.\n", 403))
        # The origin must have the same host and port. Through a tunnel, both are the tunnel's.
        origin = request.headers.get("Origin")
        foreign = origin and re.sub(r"\Ahttps?://", "", origin).lower() != request.headers["Host"].lower()
        linked = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if foreign or (request.headers.get("Sec-Fetch-Site") == "cross-site" and not linked):
            abort(Response("Requests of other sites are not answered.\n", 403))

    cookie = f"logparse-{port}"

    @app.server.before_request  # type: ignore[untyped-decorator]
    def known() -> Response | None:
        given = request.args.get("token", "")
        if not token or compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            return None
        if request.method != "GET" or not compare_digest(given.encode(), token.encode()):
            return Response("Open the address that logparse printed: it has a token.\n", 403)
        rest = urlencode([(x, y) for x, y in request.args.items(multi=True) if x != "token"])
        # A redirect would not work: the browser comes from a file, and on a redirect of another site's link it would
        # keep the strict cookie back. The page's own link belongs to this site.
        answer = Response(leading_to(f"/{request.path.lstrip('/')}{'?' * bool(rest)}{rest}"), mimetype="text/html")
        answer.set_cookie(cookie, token, httponly=True, samesite="Strict")
        return answer

    @app.server.before_request  # type: ignore[untyped-decorator]
    def no_callback() -> None:
        if request.path == "/_dash-update-component":  # The page's callbacks all run in the browser.
            abort(Response("No callback of this page.\n", 400))

    @app.server.after_request  # type: ignore[untyped-decorator]
    def closed(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        return response


def _navigation(app: Dash) -> None:
    # The URL's state appears everywhere on the page, also after "back" and in a link that was sent. The boxes are set,
    # and are no Output. The callback that sets the URL must not wait for what follows from the URL. Otherwise a click
    # beside a change of the URL leaves Dash with two callbacks that wait for each other, and the page stands still.
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("explore", "follow"),
        Output("page", "data-seen"),
        Input("url", "search"),
        Input("version", "data"),
        Input("theme", "data"),
        Input("webgl", "data"),
        State("search", "value"),
    )

    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("explore", "search"),
        Output("search", "data-seen"),
        Input("search", "value"),
        prevent_initial_call=True,
    )

    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("explore", "watch"),
        Output("version", "data"),
        Output("pulse", "disabled"),
        Output("doing", "children"),
        Input("pulse", "n_intervals"),
        State("version", "data"),
        State("url", "search"),
        prevent_initial_call=True,  # A callback that shows a version would wait for this one first.
    )

    # The browser decides on the colours (the system preference until the user chooses) and whether it has WebGL, which
    # machines without a GPU often lack.
    app.clientside_callback(  # type: ignore[no-untyped-call]
        """(clicks, theme, webgl) => {
            const preferred = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
            const now = theme || preferred;
            const next = clicks ? (now === 'dark' ? 'light' : 'dark') : now;
            document.documentElement.dataset.theme = next;
            document.documentElement.dataset.agThemeMode = next;
            const same = dash_clientside.no_update;
            const found = webgl ?? !!document.createElement('canvas').getContext('webgl');
            return [next === theme ? same : next, found === webgl ? same : found];
        }""",
        Output("theme", "data"),
        Output("webgl", "data"),
        Input("switch", "n_clicks"),
        State("theme", "data"),
        State("webgl", "data"),
    )


def _parts(app: Dash, pages: Pages) -> None:
    @app.server.route("/part/<name>", methods=["POST"])  # type: ignore[untyped-decorator]
    def part(name: str) -> Response:
        asked = request.get_json(silent=True)
        if name not in PARTS or not isinstance(asked, dict):
            abort(404)
        return Response(as_json(PARTS[name](pages, asked)), mimetype="application/json")

    @app.server.route(TABLE_URL)  # type: ignore[untyped-decorator]
    def table() -> Response:
        headers = {"Content-Disposition": "attachment; filename=logparse-problems.csv"}
        text = export(pages, request.query_string.decode("utf-8", "replace"))
        return Response(text, mimetype="text/csv", headers=headers)

    @app.server.route(FILES_URL)  # type: ignore[untyped-decorator]
    def files() -> Any:
        page = pages.of(from_url(request.query_string.decode("utf-8", "replace")))
        if page.files is None or not page.wait(_FILES_S) or page.files is None:
            return abort(404)
        return send_file(page.files, "application/zip", as_attachment=True)
