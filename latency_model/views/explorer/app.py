"""The explorer as a Dash app: callbacks, what a response may load, and a server that only this machine reaches."""

from __future__ import annotations

import errno
import ipaddress
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import flask
from dash import ClientsideFunction, Dash, Input, Output, ctx, dcc, html, no_update
from dash import State as Unwatched
from werkzeug.serving import make_server

from latency_model.errors import InputError, shorten
from latency_model.views.emit import ENGINES
from latency_model.views.explorer import layout
from latency_model.views.explorer.answer import FIGURES, Answer, heading
from latency_model.views.explorer.controls import CONTROLS, control_values, state_values
from latency_model.views.explorer.state import LARGEST_UPLOAD, UPLOADED, State

__all__ = ["build", "serve"]

#: Two uploads as JSON text, with room for escapes.
LARGEST_REQUEST = 6 * LARGEST_UPLOAD
#: What the page may load: its own files, and pictures it makes itself.  Plotly and Dash set styles from scripts.
POLICY = {
    "default-src": "'none'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
#: A host as browsers write it.
HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", flags=re.ASCII)


def build(*, local: bool = True) -> Dash:
    """The app; ``local`` refuses requests that were made for another host's name."""
    app = Dash(
        __name__,
        title="latency-model explorer",
        update_title=None,
        assets_folder=str(Path(__file__).parent / "assets"),
        serve_locally=True,
        enable_mcp=False,
        add_log_handler=False,
    )
    app.layout = layout.page
    _add_callbacks(app)
    _guard(app, local)
    return app


def _add_callbacks(app: Dash) -> None:
    values = [Input(name, "value") for name in CONTROLS]
    app.callback(
        {name: Output(name, "value") for name in CONTROLS}
        | {"uploads": Output("uploads", "data"), "notice": Output("notice", "children")},
        Input("address", "search"),
    )(show_address)
    app.callback(
        {
            "state": Output("state", "data"),
            "query": Output("query", "data"),
            "drawn": Output("drawn", "data"),
            "settings": Output("settings-of", "data"),
            "problem": Output("problem", "children"),
            **{name: Output(name, "children") for name in PARTS},
            **{f"title-{name}": Output(f"title-{name}", "children") for name in FIGURES},
        },
        {"values": dict(zip(CONTROLS, values, strict=True)), "uploads": Input("uploads", "data")},
    )(show_answer)
    app.callback(
        Output("download", "data"),
        {"clicks": [Input(button, "n_clicks") for button in FILES], "state": Unwatched("state", "data")},
        prevent_initial_call=True,
    )(save)
    _add_clientside(app)


def _add_clientside(app: Dash) -> None:
    """What needs no server: see ``assets/explorer.js``."""

    def function(name: str, *arguments: Any, **options: Any) -> None:
        app.clientside_callback(ClientsideFunction("explorer", name), *arguments, **options)

    figures = [Output(f"figure-{name}", "figure") for name in FIGURES]
    function(
        "draw",
        *figures,
        Input("drawn", "data"),
        Input("theme", "data"),
        Input("narrow", "data"),
        Unwatched("templates", "data"),
    )
    function("theme", Output("theme", "data"), Output("toggle", "children"), Input("toggle", "n_clicks"))
    function("address", Output("share", "children"), Input("query", "data"), Input("share", "n_clicks"))
    function(
        "reveal",
        Output("draft-model-controls", "hidden"),
        *(Output(f"control-acceptance_{form}", "hidden") for form in ("constant", "text", "preset")),
        Input("draft", "value"),
        Input("acceptance_form", "value"),
    )
    function(
        "settings",
        Output("settings", "children"),
        Output("settings-notes", "children"),
        Input("settings-of", "data"),
        Input("emit", "value"),
    )
    function(
        "problem",
        Output("problem", "hidden"),
        Output("answer", "className"),
        Output("notice", "hidden"),
        Input("problem", "children"),
        Input("notice", "children"),
    )
    for name in FIGURES:
        function("png", Output(f"png-{name}", "title"), Input(f"png-{name}", "n_clicks"), prevent_initial_call=True)
    function("copy", Output("copy-settings", "children"), Input("copy-settings", "n_clicks"), prevent_initial_call=True)
    function(
        "pick",
        Output("batch", "value", allow_duplicate=True),
        Output("context", "value", allow_duplicate=True),
        Output("draft_length", "value", allow_duplicate=True),
        *(Input(f"figure-{name}", "clickData") for name in ("map", "batch", "length")),
        prevent_initial_call=True,
    )
    for name, control in (("config", "model"), ("device", "hardware")):
        function(
            "upload",
            Output("uploads", "data", allow_duplicate=True),
            Output(control, "value", allow_duplicate=True),
            Output("notice", "children", allow_duplicate=True),
            Input(f"upload-{name}", "contents"),
            Input(f"use-{name}", "n_clicks"),
            Unwatched(f"paste-{name}", "value"),
            Unwatched("uploads", "data"),
            prevent_initial_call=True,
        )


def show_address(search: str | None) -> dict[str, Any]:
    """Set the controls to what an address says; one that cannot be read shows the defaults and says why."""
    notice = ""
    try:
        state = State.from_query(search or "")
    except InputError as error:
        state, notice = State(), f"This address cannot be shown, so here is the example instead: {error}"
    uploads = {"config": state.config, "device": state.device}
    return control_values(state) | {"uploads": uploads, "notice": notice}


#: Parts of the page that hold text.
PARTS = ("subject", "sentence", "facts", "remarks", "assumptions", "not-modelled")


def show_answer(values: dict[str, Any], uploads: dict[str, str]) -> dict[str, Any]:
    """Answer what the controls say; where that cannot be, say why and leave the answer before it."""
    kept = {
        "config": uploads["config"] if values["model"] == UPLOADED else "",
        "device": uploads["device"] if values["hardware"] == UPLOADED else "",
    }
    try:
        state = State.of(state_values(values) | kept)
        answer = Answer.of(state)
        drawn = answer.drawn()
    except InputError as error:
        names = ("state", "query", "drawn", "settings", *PARTS, *(f"title-{name}" for name in FIGURES))
        return dict.fromkeys(names, no_update) | {"problem": str(error)}
    return {
        "state": attrs.asdict(state),
        "query": {"text": state.query, "left_out": state.left_out},
        "drawn": drawn,
        "settings": {name: attrs.asdict(answer.settings(name)) for name in ENGINES},
        "problem": "",
        "subject": answer.subject,
        "sentence": answer.sentence,
        "facts": [html.Div([html.Dt(name), html.Dd(value)]) for name, value in answer.facts.items()],
        "remarks": _items(answer.remarks),
        "assumptions": _items(answer.plan.assumptions),
        "not-modelled": _items(answer.plan.not_modelled),
        **{f"title-{name}": heading(figure) for name, figure in drawn.items()},
    }


def _items(sentences: tuple[str, ...]) -> list[Any]:
    return [html.Li(sentence[:1].upper() + sentence[1:]) for sentence in sentences]


#: What the buttons keep: the ending of the file, and what writes it.
FILES: dict[str, tuple[str, Callable[[Answer], str]]] = {
    "save-csv": ("csv", Answer.csv),
    "save-html": ("html", Answer.html),
    "save-settings": ("txt", Answer.settings_text),
}


def save(clicks: list[int], state: dict[str, Any] | None) -> Any:
    """The file of the button pressed, once there is an answer to keep."""
    if state is None:
        return no_update
    ending, write = FILES[ctx.triggered_id]
    answer = Answer.of(State.of(state))
    return dcc.send_string(write(answer), f"{_slug(answer)}.{ending}")


def _slug(answer: Answer) -> str:
    """A name for a file, whatever a model calls itself."""
    return re.sub(r"[^\w.-]+", "-", f"latency-model-{answer.title}", flags=re.ASCII)[:80].strip("-.")


def _guard(app: Dash, local: bool) -> None:
    """Refuse requests of other pages and too large ones; say what the page may load."""
    server = app.server
    server.config["MAX_CONTENT_LENGTH"] = LARGEST_REQUEST
    scripts = " ".join(("'self'", *app.csp_hashes()))
    policy = "; ".join(f"{name} {value}" for name, value in (POLICY | {"script-src": scripts}).items())

    def check_origin() -> Any:
        headers = flask.request.headers
        host, origin = headers.get("Host", ""), headers.get("Origin")
        own_page = origin in (None, f"http://{host}", f"https://{host}")  # https: what stands before it may encrypt
        if own_page and (not local or is_local(host)):
            return None
        return flask.Response("This page answers only to requests from itself.\n", 403, mimetype="text/plain")

    def add_headers(response: Any) -> Any:
        response.headers.update(HEADERS | {"Content-Security-Policy": policy})
        return response

    def refuse(error: InputError) -> Any:
        return flask.Response(f"{error}\n", 400, mimetype="text/plain")

    server.before_request(check_origin)
    server.register_error_handler(InputError, refuse)
    server.after_request(add_headers)


def is_local(host: str) -> bool:
    """Whether a ``Host`` is this machine whoever looks it up; another name may be a page's that points it here.

    >>> [is_local(host) for host in ("localhost:8050", "[::1]:80", "127.0.0.2", "rebound.example", "a@localhost")]
    [True, True, True, False, False]
    """
    match = HOST.fullmatch(host)
    name = match["name"].strip("[]").lower() if match else ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def serve(host: str, port: int, *, ready: Callable[[str], None]) -> None:
    """Serve the page until the process is interrupted.

    Parameters
    ----------
    host
        Address of this machine to listen on.
    port
        0 takes any free one.
    ready
        Called with the page's address once it can be opened.

    Raises
    ------
    InputError
        When that address cannot be listened on.
    """
    listener = _listen(host, port)
    with listener:
        address, taken = listener.getsockname()[:2]
        local = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request is of no use here
        server = make_server(address, taken, build(local=local).server, threaded=True, fd=listener.fileno())
        shown = f"[{address}]" if ":" in address else address
        try:
            ready(f"http://{shown}:{taken}/")
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens, or a sentence."""
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 0 (any free one) to 65535, got {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(
            f"host {shorten(host)} is not known; 127.0.0.1 is this machine, 0.0.0.0 all its networks"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise InputError(_why_not(host, port, error)) from None
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use; choose another one, or 0 for any that is free"
        case errno.EADDRNOTAVAIL:
            return f"host {shorten(host)} is not an address of this machine; 127.0.0.1 is, and 0.0.0.0 all its networks"
        case errno.EACCES:
            return f"port {port} needs more rights than this process has; choose one above 1023"
    return f"{host}:{port} cannot be listened on: {error.strerror}"
