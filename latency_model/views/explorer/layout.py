"""The page: controls with their explanations on one side, the answer on the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dash import dcc, html

from latency_model.specs.dtypes import DTYPES
from latency_model.specs.engine import engine_names
from latency_model.specs.hardware import hardware_names
from latency_model.specs.loader import model_names
from latency_model.specs.quantization import FORMATS
from latency_model.views.emit import ENGINES
from latency_model.views.emit import TITLES as ENGINE_TITLES
from latency_model.views.explorer.answer import FIGURES, machine
from latency_model.views.explorer.controls import TITLES, control_values, explanation
from latency_model.views.explorer.presets import presets
from latency_model.views.explorer.state import ACTIVATIONS, DRAFTERS, FALLBACKS, LIMITS, UPLOADED, State
from latency_model.views.figures.style import THEMES, template

__all__ = ["page"]


class Choice(NamedTuple):
    """One entry of a menu."""

    label: str
    value: str


def menu(choices: Sequence[Choice]) -> list[dict[str, str]]:
    """Entries as Dash takes them."""
    return [choice._asdict() for choice in choices]


def page() -> Any:
    """Everything on the page, before the address has been read."""
    return html.Div(
        id="page",
        children=[
            dcc.Location(id="address", refresh=False),
            dcc.Store(id="uploads", data={"config": "", "device": ""}),
            *(dcc.Store(id=name) for name in ("state", "query", "drawn", "settings-of", "theme", "narrow")),
            dcc.Store(id="templates", data={theme: template(theme).to_plotly_json() for theme in THEMES}),
            dcc.Download(id="download"),
            _header(),
            html.Div(className="columns", children=[_controls(), _answer()]),
        ],
    )


def _header() -> Any:
    return html.Header(
        [
            html.H1("Should I speculate here?"),
            html.Div(
                className="actions",
                children=[
                    html.Button("Copy link", id="share", type="button", title="Copy an address that shows this choice"),
                    html.Button("Dark", id="toggle", type="button", title="Switch between light and dark"),
                ],
            ),
        ]
    )


def _controls() -> Any:
    """Every control, most asked for first."""
    return html.Details(
        id="controls",
        open=True,
        children=[
            html.Summary("Change the setting"),
            html.Form(
                [
                    _group("Model and device", [_model(), _hardware()]),
                    _group("Drafter", [_drafter(), *_acceptance()]),
                    _group("Load", [_numbers("batch", "context", "draft_length")]),
                    _folded("Parallelism", [_numbers("tp", "ep", "pp", "dp")]),
                    _folded(
                        "Routing of experts",
                        [
                            _slider("persistence", step=0.001),
                            _slider("stickiness", step=0.001),
                            _slider("popularity_cv", 4.0, 0.05),
                        ],
                    ),
                    _folded("Formats and engine", _formats()),
                ]
            ),
        ],
    )


def _group(title: str, controls: list[Any]) -> Any:
    return html.Fieldset([html.Legend(title), *controls])


def _folded(title: str, controls: list[Any]) -> Any:
    return html.Details([html.Summary(title), *controls], className="group")


def _labelled(name: str, control: Any, **attributes: Any) -> Any:
    """A control with its label and its explanation, which hovering over or focusing the question mark shows."""
    tip = f"tip-{name}"
    return html.Div(
        className="control",
        children=[
            html.Div(
                className="label",
                children=[
                    html.Label(TITLES[name], htmlFor=name, id=f"label-{name}"),
                    html.Button(
                        "?",
                        type="button",
                        className="help",
                        **{"aria-label": f"What is {TITLES[name]}?", "aria-describedby": tip},
                    ),
                    html.Span(explanation(name), id=tip, role="tooltip", className="tip"),
                ],
            ),
            control,
        ],
        **attributes,
    )


def _dropdown(name: str, choices: Sequence[Choice]) -> Any:
    return _labelled(
        name,
        dcc.Dropdown(
            id=name, options=menu(choices), value=control_values(State())[name], clearable=False, maxHeight=320
        ),
        id=f"control-{name}",
    )


def _slider(name: str, highest: float = 1.0, step: float = 0.01) -> Any:
    return _labelled(
        name,
        dcc.Slider(
            id=name,
            min=0.0,
            max=highest,
            step=step,
            value=control_values(State())[name],
            marks={0: "0", highest / 2: f"{highest / 2:g}", highest: f"{highest:g}"},
        ),
        id=f"control-{name}",
    )


def _numbers(*names: str) -> Any:
    """Number fields side by side."""
    fields = []
    for name in names:
        lowest, highest = LIMITS[name]
        field = dcc.Input(
            id=name,
            type="number",
            min=lowest,
            max=highest,
            step=1,
            value=getattr(State(), name),
            placeholder="best" if name == "draft_length" else "",
            debounce=0.3,
            inputMode="numeric",
        )
        fields.append(_labelled(name, field))
    return html.Div(fields, className=f"numbers of-{len(names)}")


def _upload(name: str, what: str) -> Any:
    return html.Div(
        className="upload",
        children=[
            dcc.Upload(
                id=f"upload-{name}",
                children=html.Span(["Drop or choose ", what]),
                className="drop",
                className_active="drop active",
            ),
            html.Details(
                [
                    html.Summary(f"or paste {what}"),
                    html.Label(f"Text of {what}", htmlFor=f"paste-{name}"),
                    dcc.Textarea(id=f"paste-{name}", rows=6, spellCheck=False),
                    html.Button("Use it", id=f"use-{name}", type="button"),
                ],
                className="paste",
            ),
        ],
    )


def _model() -> Any:
    choices = [*(Choice(name, name) for name in model_names()), Choice("Uploaded config.json", UPLOADED)]
    return html.Div([_dropdown("model", choices), _upload("config", "a config.json")])


def _hardware() -> Any:
    choices = [Choice(machine(name).title, name) for name in hardware_names()]
    return html.Div(
        [_dropdown("hardware", [*choices, Choice("Uploaded profile", UPLOADED)]), _upload("device", "a profile (TOML)")]
    )


def _drafter() -> Any:
    return html.Div(
        [
            _dropdown("draft", [Choice(title, name) for name, title in DRAFTERS.items()]),
            html.Div(
                id="draft-model-controls",
                children=[
                    _dropdown("draft_model", [Choice(name, name) for name in model_names()]),
                    _numbers("draft_tp"),
                ],
            ),
        ]
    )


def _acceptance() -> list[Any]:
    return [
        dcc.RadioItems(
            id="acceptance_form",
            options=menu([Choice("one α", "constant"), Choice("by position", "text"), Choice("published", "preset")]),
            value="text",
            inline=True,
            className="forms",
        ),
        _slider("acceptance_constant"),
        _labelled(
            "acceptance_text",
            dcc.Input(
                id="acceptance_text",
                type="text",
                debounce=0.6,
                placeholder="published for this kind of drafter",
                spellCheck=False,
            ),
            id="control-acceptance_text",
        ),
        _dropdown("acceptance_preset", [Choice(preset.title, name) for name, preset in presets().items()]),
    ]


def _formats() -> list[Any]:
    stored = Choice("as stored", "")
    engines = [Choice(ENGINE_TITLES.get(name, "none: bare kernels"), name) for name in engine_names()]
    return [
        _dropdown("weights", [stored, *(Choice(name, name) for name in FORMATS)]),
        _dropdown("kv_dtype", [stored, *(Choice(name, name) for name in DTYPES)]),
        _dropdown("activations", [Choice(name, name) for name in ACTIVATIONS]),
        _dropdown("fallback", [Choice(title, name) for name, title in FALLBACKS.items()]),
        _dropdown("engine", engines),
        _slider("kv_reread"),
    ]


def _answer() -> Any:
    """What the choice means."""
    return html.Main(
        id="answer",
        children=[
            html.P(id="problem", role="alert", hidden=True),
            html.P(id="notice", role="status", hidden=True),
            html.Section(
                className="card verdict",
                children=[
                    html.P(id="subject"),
                    html.P(id="sentence", **{"aria-live": "polite"}),
                    html.Dl(id="facts"),
                ],
            ),
            html.Div(className="figures", children=[_figure(name) for name in FIGURES]),
            html.Section(
                className="card",
                children=[html.H2("Why"), html.Ul(id="remarks")],
            ),
            _settings(),
            html.Section(
                className="card small",
                children=[
                    html.Details([html.Summary("Assumed"), html.Ul(id="assumptions")]),
                    html.Details([html.Summary("Not modelled"), html.Ul(id="not-modelled")]),
                ],
            ),
        ],
    )


def _figure(name: str) -> Any:
    heading = f"title-{name}"
    return html.Section(
        className=f"card figure {name}",
        **{"aria-labelledby": heading},
        children=[
            html.Div(
                className="caption",
                children=[
                    html.H2(id=heading),
                    html.Button("PNG", id=f"png-{name}", type="button", title="Save this figure as a picture"),
                ],
            ),
            html.Div(
                className="chart",
                children=dcc.Graph(id=f"figure-{name}", responsive=True, config={"displayModeBar": False}),
            ),
        ],
    )


def _settings() -> Any:
    return html.Section(
        className="card",
        children=[
            html.H2("Paste into an engine"),
            dcc.RadioItems(
                id="emit",
                options=menu([Choice(ENGINE_TITLES[name], name) for name in ENGINES]),
                value="vllm",
                inline=True,
                className="forms",
            ),
            html.Pre(id="settings", tabIndex="0"),
            html.Ul(id="settings-notes"),
            html.Div(
                className="actions",
                children=[
                    html.Button("Copy", id="copy-settings", type="button"),
                    html.Button("Save the settings", id="save-settings", type="button"),
                    html.Button("Save the curve (CSV)", id="save-csv", type="button"),
                    html.Button("Save the page (HTML)", id="save-html", type="button"),
                ],
            ),
        ],
    )
