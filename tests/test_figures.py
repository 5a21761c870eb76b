"""Figures show what the model says: every drawn number is recomputed, every axis has a unit, pages work alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner

import latency_model as lm
from latency_model.cli import main
from latency_model.views import report
from latency_model.views.figures import style

MODEL, MACHINE = "Qwen3-30B-A3B", "h100-sxm"
VECTOR = lm.Acceptance.conditional([0.7, 0.62, 0.6, 0.58])
BATCHES = [1, 4, 16, 64, 256]


@pytest.fixture(scope="module")
def grid() -> xarray.Dataset:
    return lm.sweep(
        MODEL,
        [MACHINE, "h200-sxm"],
        quantity=report.NEEDED,
        batch=BATCHES,
        context=[512, 4096, 65536],
        draft_length=range(7),
        acceptance=VECTOR,
    )


def every_figure(grid: xarray.Dataset) -> Iterator[Any]:
    point = lm.speculate(MODEL, MACHINE, acceptance=VECTOR, draft_length=3, batch=16)
    yield from report.sweep_figures(grid)
    yield lm.figures.waterfall(point)
    yield lm.figures.roofline(point)
    yield lm.figures.experts(MODEL, MACHINE)
    yield lm.figures.latency_against_load(MODEL, MACHINE, acceptance=VECTOR, limit=5.0)


def lines(figure: Any) -> list[Any]:
    return [trace for trace in figure.data if trace.mode in ("lines", "lines+markers") and trace.customdata is not None]


def test_every_axis_has_a_unit_and_log_scales_say_so(grid: xarray.Dataset) -> None:
    for figure in every_figure(grid):
        for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
            if axis.type == "category" or not axis.title.text:
                continue
            assert re.search(r"\[.+\]", axis.title.text), axis.title.text
            assert ("log scale" in axis.title.text) == (axis.type == "log")


def test_buttons_leave_the_axes_consistent(grid: xarray.Dataset) -> None:
    for figure in every_figure(grid):
        for menu in figure.layout.updatemenus:
            if menu.type == "buttons":
                for button in menu.buttons:
                    (change,) = button.args
                    drawn = {axis.plotly_name for axis in (*figure.select_xaxes(), *figure.select_yaxes())}
                    assert {name.partition(".")[0] for name in change} == drawn
                    assert len({change[f"{name}.type"] for name in drawn if name.startswith("x")}) == 1
                    for name in drawn:
                        title = change[f"{name}.title.text"]
                        assert not title or (change[f"{name}.type"] == "log") == ("log scale" in title)


def test_every_figure_says_its_hardware_and_assumptions(grid: xarray.Dataset) -> None:
    digest = lm.load_hardware(MACHINE).digest
    for figure in every_figure(grid):
        (footer,) = [note.text for note in figure.layout.annotations if note.name == "footer"]
        assert digest in footer
        assert "Assumed: routing persistence" in footer
        assert "Not modelled: " in footer


def test_linear_axes_of_speedup_start_at_nothing(grid: xarray.Dataset) -> None:
    figure = lm.figures.speedup(grid, against="batch")
    assert figure.layout.yaxis.rangemode == "tozero"


def test_speedup_lines_are_the_best_of_all_draft_lengths(grid: xarray.Dataset) -> None:
    figure = lm.figures.speedup(grid, against="batch", by="hardware")
    drawn = {(line.name, line.meta["picture"]): line for line in lines(figure)}
    for machine in (MACHINE, "h200-sxm"):
        for picture, context in enumerate([512, 4096, 65536]):
            plan = lm.optimize(MODEL, machine, acceptance=VECTOR, batch=BATCHES, context=context, max_draft_length=6)
            line = drawn[machine, picture]
            np.testing.assert_allclose(line.y, plan.speedup)
            assert f"best draft length {plan.draft_length[0]}" in line.customdata[0]
            assert f"held back by {plan.held_back_by[0]}" in line.customdata[0]


def test_bands_are_the_intervals_of_a_plan(grid: xarray.Dataset) -> None:
    figure = lm.figures.speedup(grid, against="batch", by="hardware")
    band = next(trace for trace in figure.data if trace.fill == "toself")
    plan = lm.optimize(MODEL, MACHINE, acceptance=VECTOR, batch=BATCHES, context=512, max_draft_length=6)
    low, high = np.asarray(band.y[: len(BATCHES)]), np.asarray(band.y[len(BATCHES) :])[::-1]
    np.testing.assert_allclose(low, plan.speedup_low)
    np.testing.assert_allclose(high, plan.speedup_high)


def test_points_that_do_not_fit_are_hollow(grid: xarray.Dataset) -> None:
    figure = lm.figures.speedup(grid.sel(context=65536, hardware=MACHINE), against="batch", by="draft_length")
    for line, length in zip(lines(figure), grid.draft_length.values, strict=True):
        fits = grid.fits.sel(context=65536, hardware=MACHINE, draft_length=length).values
        assert [symbol.endswith("-open") for symbol in line.marker.symbol] == (~fits).tolist()
    assert any("does not fit" in (trace.name or "") for trace in figure.data)


@pytest.mark.parametrize(("longest", "shaded"), [(4, False), (6, True)])
def test_drafts_beyond_the_acceptance_given_are_shaded(longest: int, shaded: bool) -> None:
    figure = lm.figures.speedup(MODEL, hardware=MACHINE, acceptance=VECTOR, draft_length=range(longest + 1))
    assert bool(figure.layout.shapes) == shaded
    if shaded:
        assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (4, 6)


def test_the_map_shows_the_plan_of_every_point(grid: xarray.Dataset) -> None:
    one = grid.sel(hardware=MACHINE)
    plan = lm.optimize(MODEL, MACHINE, acceptance=VECTOR, batch=BATCHES, context=one.context, max_draft_length=6)
    lengths, *others = lm.figures.draft_length_map(one).data
    levels = next(trace for trace in others if trace.name == "equal speedup")
    np.testing.assert_array_equal(lengths.z, plan.draft_length.T)
    np.testing.assert_allclose(levels.z, plan.speedup.T)
    assert f"best draft length {plan.draft_length[1, 0]}" in lengths.customdata[0][1]


def test_break_even_is_drawn_where_it_is_crossed() -> None:
    slow = lm.Draft.model(lm.load_model("Qwen3-8B"))
    axes: dict[str, Any] = {"batch": [1, 16, 48, 300], "context": [512, 4096], "draft_length": range(4), "draft": slow}
    figure = lm.figures.draft_length_map(MODEL, hardware=MACHINE, acceptance=0.5, **axes)
    (line,) = [trace for trace in figure.data if trace.name == "break-even"]
    assert (line.contours.start, line.contours.end) == (1.0, 1.0)
    assert (np.asarray(line.z) > 1).any()
    assert (np.asarray(line.z) < 1).any()


def test_the_dotted_line_surrounds_what_is_nearly_as_good(grid: xarray.Dataset) -> None:
    one = grid.sel(hardware=MACHINE)
    figure = lm.figures.draft_length_map(one)
    (line,) = [trace for trace in figure.data if "within 1 %" in (trace.name or "")]
    plan = lm.optimize(MODEL, MACHINE, acceptance=VECTOR, batch=BATCHES, context=one.context, max_draft_length=6)
    width = (plan.plateau[..., 1] - plan.plateau[..., 0] + 1).T
    np.testing.assert_array_equal(np.asarray(line.z) > line.contours.start, width >= 3)
    said = figure.data[0].customdata[0][1]
    assert "within 1 % of the best: {} to {} tokens".format(*plan.plateau[1, 0]) in said


def test_the_map_marks_what_goes_beyond_the_inputs(grid: xarray.Dataset) -> None:
    one = grid.sel(hardware=MACHINE)
    (dots,) = [trace for trace in lm.figures.draft_length_map(one).data if "beyond" in (trace.name or "")]
    longest = lm.load_model(MODEL).max_context
    best = one.draft_length[one.speedup.argmax("draft_length")]
    expected = {
        (int(batch), int(context))
        for batch in one.batch
        for context in one.context
        if context > longest or best.sel(batch=batch, context=context) > len(VECTOR.conditionals)
    }
    assert set(zip(dots.x.tolist(), dots.y.tolist(), strict=True)) == expected
    assert len(expected) < one.sizes["batch"] * one.sizes["context"]


def test_each_draft_length_of_the_map_has_a_flat_colour(grid: xarray.Dataset) -> None:
    lengths = lm.figures.draft_length_map(grid.sel(hardware=MACHINE)).data[0]
    places = [place for place, _ in lengths.colorscale]
    for length in range(7):
        middle = (length - lengths.zmin) / (lengths.zmax - lengths.zmin)
        index = int(np.searchsorted(places, middle))
        assert lengths.colorscale[index - 1][1] == lengths.colorscale[index][1]


def test_pareto_curves_compare_the_best_with_plain_decoding(grid: xarray.Dataset) -> None:
    speculative, plain, *_ = lines(lm.figures.pareto(grid, by="hardware"))
    for context in [512]:
        best = lm.optimize(MODEL, MACHINE, acceptance=VECTOR, batch=BATCHES, context=context, max_draft_length=6).best
        np.testing.assert_allclose(speculative.x, best.tokens_per_second_per_sequence)
        np.testing.assert_allclose(speculative.y, best.tokens_per_second_per_device)
        np.testing.assert_allclose(plain.x, 1.0 / best.baseline_time)


def test_the_waterfall_adds_up_and_breaks_even_at_the_line() -> None:
    point = lm.speculate(MODEL, MACHINE, acceptance=VECTOR, draft_length=3, batch=16)
    bars, line = lm.figures.waterfall(point).data
    assert sum(bars.x[:-1]) == pytest.approx(bars.x[-1])
    assert bars.x[-1] == pytest.approx(1e3 * float(point.time))
    assert line.x[0] / bars.x[-1] == pytest.approx(float(point.speedup))


def test_no_operation_stands_above_the_datasheet() -> None:
    figure = lm.figures.roofline(MODEL, MACHINE, batch=64, draft_length=4)
    roof = next(trace for trace in figure.data if (trace.name or "").startswith("datasheet"))
    for trace in figure.data:
        if trace.mode == "markers+text":
            above = np.interp(np.log(trace.x), np.log(roof.x), np.log(roof.y))
            assert (np.log(trace.y) <= above + 1e-6).all()
    assert {"decode", "verify 5 tokens", "draft", "prefill 2,048 tokens"} <= {trace.name for trace in figure.data}


def test_expert_lines_are_the_formula() -> None:
    figure = lm.figures.experts(MODEL, MACHINE, batch=[1, 8, 64], tokens_per_sequence=[4])
    routing = lm.Routing()
    touched = lm.formulas.distinct_experts(
        128, 8, 4, np.array([1, 8, 64]), persistence=routing.persistence, stickiness=routing.stickiness
    )
    np.testing.assert_allclose(figure.data[0].y, touched)
    np.testing.assert_allclose(figure.data[1].y, np.array([4, 32, 256]) * 8 / touched)


@pytest.fixture(scope="module")
def served() -> lm.ServingCurve:
    """Llama-3.1-8B with break-even loads below saturation."""
    asked: dict[str, Any] = {"draft_length": [3, 5], "prompt_tokens": 128, "output_tokens": 512}
    curve = lm.serve("Meta-Llama-3.1-8B", MACHINE, acceptance=VECTOR, **asked)
    return curve.at(np.linspace(0.02, 1.02, 20) * curve.saturation_rate.max())


def test_latency_lines_are_the_served_curve_up_to_saturation(served: lm.ServingCurve) -> None:
    figure = lm.figures.latency_against_load(served)
    for row, line in enumerate(lines(figure)[:3]):
        full = served.saturated[row]
        np.testing.assert_array_equal(line.x, served.rate)
        np.testing.assert_allclose(np.asarray(line.y)[~full], served.latency[row][~full])
        assert np.isnan(np.asarray(line.y, dtype=float)[full]).all()
        assert f"held back by {served.held_back[0][row, 0]}" in line.customdata[0]
        assert f"full at {served.saturation_rate[row]:.3g}/s" in line.name
    verticals = {shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1}
    assert verticals == {float(rate) for rate in served.saturation_rate}


def test_bands_of_latency_are_the_intervals_of_the_curve(served: lm.ServingCurve) -> None:
    curve = lm.serve("Meta-Llama-3.1-8B", MACHINE, acceptance=VECTOR, rate=served.rate)
    figure = lm.figures.latency_against_load(curve)
    bands = [trace for trace in figure.data if trace.fill == "toself"]
    low, high = curve.interval
    top = figure.layout.yaxis.range[1]
    assert len(bands) == 2
    for row, band in enumerate(bands):
        drawn = ~curve.saturated[row] & (low.latency[row] < top)
        count = int(drawn.sum())
        np.testing.assert_allclose(band.y[:count], low.latency[row][drawn])
        np.testing.assert_allclose(band.y[count:][::-1], np.minimum(high.latency[row][drawn], top))
    assert not any(trace.fill for trace in lm.figures.latency_against_load(served).data)  # three would be mud


def test_stars_stand_where_drafting_stops_to_pay(served: lm.ServingCurve) -> None:
    (stars,) = [trace for trace in lm.figures.latency_against_load(served).data if trace.name == "break-even"]
    np.testing.assert_allclose(stars.x, served.break_even_rate[1:])
    for row, (rate, height) in enumerate(zip(stars.x, stars.y, strict=True), start=1):
        at = served.at(rate)
        assert at.latency[row] == pytest.approx(height)
        assert at.latency[0] == pytest.approx(height, rel=1e-6)
    assert "3 drafted no longer pays above" in stars.customdata[0]


@pytest.mark.parametrize(
    ("quantity", "limit", "unit"), [("latency", 6.0, 1.0), ("tpot", 0.012, 1e3), ("ttft", 0.03, 1.0)]
)
def test_crosses_stand_where_a_promise_is_just_kept(
    served: lm.ServingCurve, quantity: str, limit: float, unit: float
) -> None:
    figure = lm.figures.latency_against_load(served, quantity=quantity, limit=limit)
    (crosses,) = [trace for trace in figure.data if (trace.name or "").startswith("highest rate within")]
    np.testing.assert_allclose(crosses.x, served.goodput(**{quantity: limit}))
    np.testing.assert_allclose(crosses.y, limit * unit)
    (promise,) = [shape for shape in figure.layout.shapes if shape.y0 == shape.y1]
    assert promise.y0 == pytest.approx(limit * unit)


def test_a_figure_from_arguments_reaches_from_a_lone_request_to_saturation() -> None:
    figure = lm.figures.latency_against_load("Meta-Llama-3.1-8B", MACHINE, acceptance=VECTOR, theme="dark")
    curve = lm.serve("Meta-Llama-3.1-8B", MACHINE, acceptance=VECTOR)
    plain, drafting = lines(figure)[:2]
    assert plain.y[0] == pytest.approx(curve.at(1e-6).latency[0], rel=0.02)
    assert 0.99 < max(drafting.x) / curve.saturation_rate.max() < 1.0
    low, high = figure.layout.yaxis.range
    assert low == 0.0
    assert plain.y[0] < high < max(value for value in plain.y if np.isfinite(value))


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda g: lm.figures.speedup(g.isel(batch=0, context=0, draft_length=0)), "give several values of batch or"),
        (lambda g: lm.figures.speedup(g, against="tp"), "not several values of tp .* try batch, context"),
        (lambda g: lm.figures.speedup(g, by="acceptance"), "not several values of acceptance to tell lines"),
        (lambda g: lm.figures.speedup(g, batch=[1]), "a Dataset has its axes already, got batch"),
        (lambda g: lm.figures.speedup(g.drop_vars("fits")), "lacks fits; sweep with quantity"),
        (lambda g: lm.figures.speedup(g, theme="blue"), "theme must be light or dark, got 'blue'"),
        (lambda g: lm.figures.draft_length_map(g.isel(context=0)), "needs several values of context"),
        (lambda g: lm.figures.pareto(g.sel(draft_length=[1, 2])), "0 among them"),
        (lambda _: lm.figures.waterfall(MODEL, MACHINE, batch=[1, 2]), "shows one point, got 2"),
        (lambda _: lm.figures.experts("Qwen3-8B", MACHINE), "is dense"),
        (lambda _: lm.figures.experts(MODEL, MACHINE, batch=4), "needs at least 2 batches"),
        (lambda _: lm.figures.latency_against_load("Qwen3-8B", MACHINE, rate=1.0), "several request rates in one list"),
        (
            lambda _: lm.figures.latency_against_load("Qwen3-8B", MACHINE, quantity="p99"),
            "quantity must be latency, tpot",
        ),
        (
            lambda _: lm.figures.latency_against_load("Qwen3-8B", MACHINE, limit=-1.0),
            "limit on latency must be a number",
        ),
        (lambda _: lm.figures.latency_against_load("Qwen3-8B", MACHINE, draft_length=range(9)), "9 lines are too many"),
        (
            lambda _: lm.figures.speedup(MODEL, hardware=MACHINE, batch=range(1, 9), tp=[1, 2], context=range(70)),
            "70 context are 70 pictures, more than 60",
        ),
    ],
)
def test_a_mistake_is_one_sentence(grid: xarray.Dataset, draw: Any, sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence):
        draw(grid)


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2.1 defines it."""

    def luminance(colour: str) -> float:
        channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", style.THEMES)
def test_text_and_lines_stand_out(theme: str) -> None:
    colours = style.THEMES[theme]
    assert contrast(colours["ink"], colours["paper"]) > 7
    assert contrast(colours["faint"], colours["paper"]) > 4.5
    for colour in style.PALETTE:
        assert contrast(colour, colours["paper"]) > 2.5, colour


class Page(HTMLParser):
    """What a page loads from elsewhere, and its text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def test_a_page_needs_nothing_else_and_shows_names_as_text(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    arguments = ["-m", MODEL, "-H", MACHINE, "-b", "1,8,64", "-c", "1024,8192", "--html", str(path)]
    result = CliRunner().invoke(main, ["sweep", *arguments])
    assert result.exit_code == 0, result.output
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.references == []
    assert "<!--" not in text.partition("<script>")[0]
    assert text.count("/**\n* plotly.js v") == 1
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert len(figures) == 8
    assert not any(note.get("name") == "footer" for figure in figures for note in figure["layout"]["annotations"])


def test_a_page_survives_what_cannot_be_and_long_axes(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    arguments = ["-m", "Qwen3-8B", "-H", MACHINE, "--tp", "3,1", "-b", "1:40", "-c", "0:90000:1000", "-k", "0,2"]
    result = CliRunner().invoke(main, ["sweep", *arguments, "--html", str(path)])
    assert result.exit_code == 0, result.output
    assert path.stat().st_size < 12e6


@pytest.mark.parametrize("contexts", [[1024, 8192], [0, 4096], [512, 4096, 65536]])
def test_cells_of_the_map_hold_their_point_and_nothing_below_zero(contexts: list[int]) -> None:
    cells = lm.figures.draft_length_map(MODEL, hardware=MACHINE, batch=[1, 8, 64], context=contexts).data[0]
    for edges, values in ((cells.x, [1, 8, 64]), (cells.y, contexts)):
        low, high = np.asarray(edges[:-1]), np.asarray(edges[1:])
        assert (low >= 0).all()
        assert ((low <= values) & (values <= high)).all()


def test_what_cannot_be_is_blank_on_the_map() -> None:
    grid = lm.sweep("Qwen3-8B", MACHINE, tp=[3, 1], batch=[1, 8], context=[0, 8], draft_length=[0, 2])
    first, *_ = lm.figures.draft_length_map(grid).data
    assert np.isnan(np.asarray(first.z, dtype=float)).all()


def test_a_hostile_name_is_only_text() -> None:
    import attrs

    name = "<img src=x onerror=alert(1)></script><script>alert(2)//"
    model = attrs.evolve(lm.load_model("Qwen3-8B"), name=name)
    grid = lm.sweep(model, MACHINE, quantity=report.NEEDED, batch=[1, 8])
    text = report.page(name, list(report.sweep_figures(grid)), summary=name)
    assert "img" not in Page(text).tags
    assert Page(text).tags.count("script") == 4


def test_the_summary_names_the_largest_speedup_that_fits(grid: xarray.Dataset) -> None:
    top = float(grid.speedup.where(grid.fits).max())
    assert f"{top:.2f} times" in report.summary(grid)
    assert float(grid.speedup.max()) > top
