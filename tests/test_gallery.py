"""The gallery shows what the formulas say and what was published, with the errors `validate` has, on one page."""

from __future__ import annotations

import csv
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import latency_model as lm
from latency_model.cli import main
from latency_model.errors import InputError
from latency_model.evidence.published import REPLAYS
from latency_model.evidence.published.record import DATA
from latency_model.views import gallery
from latency_model.views.gallery import context, dial, skew
from latency_model.views.gallery.claim import links


@pytest.fixture(scope="module")
def built() -> dict[str, gallery.Claim]:
    return gallery.claims()


def rows(table: str) -> list[dict[str, str]]:
    lines = (DATA / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def published(claim: gallery.Claim) -> list[Any]:
    return [t for figure in claim.figures for t in figure.data if (t.name or "").startswith("published")]


def named(claim: gallery.Claim, figure: int, name: str, **wanted: Any) -> Any:
    (trace,) = [t for t in claim.figures[figure].data if t.name == name and all(t[k] == v for k, v in wanted.items())]
    return trace


def test_claims_go_by_name_or_number() -> None:
    assert list(gallery.claims([9])) == list(gallery.claims("9")) == list(gallery.claims(["skew"])) == ["skew"]
    with pytest.raises(InputError, match="no claim is named '0'"):
        gallery.claims([0])
    with pytest.raises(InputError, match="a name or a list of names and numbers, got 9"):
        gallery.claims(9)  # type: ignore[arg-type]


def test_ten_claims_stand_in_order(built: dict[str, gallery.Claim]) -> None:
    assert list(built) == list(gallery.CLAIMS)
    assert len(built) == 10
    for name, claim in built.items():
        assert claim.name == name
        assert claim.figures
        assert claim.checks
        assert claim.sources
        assert all(address.startswith("https://") for _, address in claim.sources)


def test_published_points_are_drawn_or_their_absence_is_explained(built: dict[str, gallery.Claim]) -> None:
    for claim in built.values():
        assert bool(published(claim)) != bool(claim.unpublished), claim.name


def test_axes_have_units_and_say_their_scale(built: dict[str, gallery.Claim]) -> None:
    for claim in built.values():
        for figure in claim.figures:
            for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
                assert not axis.title.text or re.search(r"\[.+\]", axis.title.text), axis.title.text
                assert not axis.title.text or ("log scale" in axis.title.text) == (axis.type == "log")


def test_errors_are_those_of_validate(built: dict[str, gallery.Claim]) -> None:
    same = {check.name: check for claim in built.values() for check in claim.checks if check.name in REPLAYS}
    assert len(same) >= 8
    for row in lm_validate(same):
        check = same[row["group"]]
        assert check.median_error == row["median_error"]
        assert check.bias == row["bias"]
        assert len(check.rows) == row["n"]


def lm_validate(names: Any) -> list[dict[str, Any]]:
    from latency_model.evidence.validate import validate

    return validate(names).rows()


def test_every_error_is_printed(built: dict[str, gallery.Claim]) -> None:
    for number, claim in enumerate(built.values(), start=1):
        section = claim.section(number)
        assert section.title.startswith(f"{number}. ")
        for check, sentence in zip(claim.checks, claim.errors, strict=True):
            assert sentence in section.findings
            shown = check.rows[0].error if len(check.rows) <= 3 else check.median_error
            assert f"{shown:.1%}" in sentence


def test_draft_lengths_are_the_best_of_all(built: dict[str, gallery.Claim]) -> None:
    line = named(built["draft-length"], 0, "c = 0.073 (T5-large-800M)", showlegend=None)
    lengths = np.arange(65.0)
    gain = lm.formulas.walltime_improvement(np.asarray(line.x)[:, None], lengths, 0.8 / 11.0)
    np.testing.assert_array_equal(line.y, lengths[gain.argmax(-1)])


def test_mixtures_reach_the_peaks_that_validate_predicts(built: dict[str, gallery.Claim]) -> None:
    claim = built["moe-batch"]
    (check,) = [check for check in claim.checks if check.name == "moesd"]
    curve = named(claim, 0, "Qwen2-57B-A14B, 2x h800-sxm")
    (row,) = [row for row in check.rows if row.case == "Qwen2-57B-A14B 2xGPU-B humaneval T=0 γ=4"]
    assert row.predicted <= max(curve.y) + 1e-9
    assert max(curve.y) == pytest.approx(row.predicted, rel=0.02)  # at batches between powers of two
    peak = int(np.argmax(curve.y))
    assert 0 < peak < len(curve.y) - 1


def test_dense_models_only_lose_and_the_mixture_dips_and_peaks(built: dict[str, gallery.Claim]) -> None:
    dense = named(built["moe-batch"], 1, "Llama-3.1-8B (dense), EAGLE-3")
    assert (np.diff(dense.y) < 1e-9).all()
    gain = np.asarray(named(built["moe-batch"], 1, "Qwen3-30B-A3B (mixture)").y)
    dip, peak = gain.argmin(), gain.argmax()
    assert 0 < dip < peak < len(gain) - 1


def test_published_points_are_the_tables(built: dict[str, gallery.Claim]) -> None:
    points = named(built["moe-batch"], 1, "published: dense, EAGLE-3")
    table = [row for row in rows("eagle3_batch_throughput") if row["method"] == "EAGLE-3"]
    np.testing.assert_allclose(points.x, [float(row["batch_size"]) for row in table])
    np.testing.assert_allclose(points.y, [float(row["throughput_ratio"]) for row in table])
    layer = named(built["fixed-costs"], 1, "published: Qwen3-30B-A3B on H100 in SGLang")
    table = rows("oea_qwen3_30b_moe_layer_latency")
    np.testing.assert_allclose(layer.y, [float(row["moe_layer_latency_us"]) for row in table])
    drawn = sum(len(trace.x) for trace in published(built["context"]))
    assert drawn == len(rows("magicdec_a100"))


def test_unions_are_the_formula_and_below_independent_tokens(built: dict[str, gallery.Claim]) -> None:
    independent = named(built["correlation"], 1, "independent tokens, 8 of 256")
    np.testing.assert_allclose(independent.y, 256 * (1 - (1 - 8 / 256) ** np.asarray(independent.x)))
    alike = named(built["correlation"], 1, "Qwen3.6-35B-A3B (code)")
    assert (np.asarray(alike.y)[1:] < np.asarray(independent.y)[1:]).all()


def test_fixed_costs_make_verification_cheaper(built: dict[str, gallery.Claim]) -> None:
    claim = built["fixed-costs"]
    names = ("with launches and host", "bytes alone, tokens choose alike", "bytes alone, independent tokens")
    whole, alike, apart = (np.asarray(named(claim, 0, name).y) for name in names)
    assert whole[0] == alike[0] == apart[0] == 1.0
    assert (whole[1:] < alike[1:]).all()
    assert (alike[1:] < apart[1:]).all()


def test_sparser_designs_peak_higher_and_later(built: dict[str, gallery.Claim]) -> None:
    lines = [t for t in built["sparsity"].figures[0].data if (t.name or "").endswith("weights shared")]
    for kept, batch in zip(lines[::2], lines[1::2], strict=True):
        assert (np.diff(kept.y) > 0).all()  # from k/E = 1 to 1/64
        assert (np.diff(batch.y) >= 0).all()


def test_the_design_of_the_base_model_is_the_base_model() -> None:
    from latency_model.views.gallery.sparsity import _peak

    design = _peak(64, 0.5).round.setting.model
    assert design.total_parameters == lm.load_model("Qwen2-57B-A14B").total_parameters


def test_the_formula_on_their_step_times_finds_the_inflection(built: dict[str, gallery.Claim]) -> None:
    fits = {
        row["quantity"]: [float(row[name] or 0) for name in context.COEFFICIENTS]
        for row in rows("magicdec_affine_fits")
        if (row["target"], row["draft"]) == context.TURNING
    }
    at = 7891.0
    gains = []
    for batch in (context.FEW, context.MANY):
        plain, verify, draft = (
            fixed + batch * (each + cached * at)
            for fixed, each, cached in (fits["T_T"], fits["T_V(gamma=2)"], fits["T_D"])
        )
        gains.append(plain / (2 * draft + verify))
    assert gains[0] == pytest.approx(gains[1], rel=1e-3)
    (check,) = [check for check in built["context"].checks if check.name == "magicdec-crossing"]
    assert check.rows[1].predicted == pytest.approx(at, rel=0.01)


def test_idle_shares_are_those_of_simulated_ranks() -> None:
    row = rows("harmoeny_layer_breakdown")[0]
    experts, hot, ranks = (int(row[name]) for name in ("experts", "hot_experts", "ranks"))
    share = float(row["hot_share"])
    load = np.full(experts, (1 - share) / (experts - hot))
    load[:hot] = share / hot
    ranked = load.reshape(ranks, -1).sum(-1)
    assert skew._idle_check().rows[0].predicted == pytest.approx(1 - ranked.mean() / ranked.max())


def test_no_policy_beats_the_dial() -> None:
    found = dial.day("Llama-3.1-8B")
    batch = dial.sequences()
    for length in range(dial.LONGEST + 1):
        round_ = lm.speculate("Llama-3.1-8B", dial.DEVICE, batch=batch, context=1024, draft_length=length)
        rate = batch * round_.tokens_per_second_per_sequence
        assert (rate <= found.rates["dial"] * (1 + 1e-9)).all()
        assert rate.mean() <= found.rates["fixed"].mean() * (1 + 1e-9)
    assert (found.rates["table"] <= found.rates["dial"] * (1 + 1e-9)).all()


def test_every_choice_of_the_menus_shows_a_picture(built: dict[str, gallery.Claim]) -> None:
    for claim in built.values():
        for figure in claim.figures:
            pictures = figure.layout.meta["pictures"]
            names = list(pictures[0]) if pictures else []
            values = [dict.fromkeys(picture[name] for picture in pictures) for name in names]
            assert len(pictures) == np.prod([len(each) for each in values], dtype=int) * bool(pictures)
            shown = {(trace.meta or {}).get("picture") for trace in figure.data}
            assert set(range(len(pictures))) <= shown


def test_links_name_each_address_once() -> None:
    texts = ["A, arXiv 2408.11049; https://github.com/a/b, c", "B, github.com/a/b", "no address"]
    assert links(texts) == (
        ("A, arXiv 2408.11049, c", "https://arxiv.org/abs/2408.11049"),
        ("github.com/a/b", "https://github.com/a/b"),
    )


class Document(HTMLParser):
    """Anchors, links and what a page would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        (self.links if tag == "a" else self.loaded).extend(given[name] for name in ("href", "src") if name in given)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["gallery", *arguments])


def test_the_command_writes_one_page_that_needs_no_network(tmp_path: Path) -> None:
    result = run("-o", str(tmp_path / "gallery"), "--only", "9, correlation", "--format", "json")
    assert result.exit_code == 0, result.output
    errors = json.loads(result.stdout)["rows"]
    assert {row["claim"] for row in errors} == {"correlation", "skew"}
    assert [path.name for path in (tmp_path / "gallery").iterdir()] == ["index.html"]
    text = (tmp_path / "gallery" / "index.html").read_text(encoding="utf-8")
    document = Document(text)
    assert document.loaded == []
    assert text.count("/**\n* plotly.js v") == 1
    inside = {link[1:] for link in document.links if link.startswith("#")}
    assert {"correlation", "skew", "contents"} == inside
    assert inside <= document.anchors
    assert all(link.startswith(("#", "https://")) for link in document.links)
    assert "9. Skewed experts leave ranks idle" in text
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert [f'data-figure="{number}"' in text for number in range(len(figures))] == [True] * len(figures)


def test_a_page_that_exists_stays_without_force(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("mine")
    result = run("-o", str(tmp_path), "--only", "skew")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert page.read_text() == "mine"
    assert run("-o", str(tmp_path), "--only", "skew", "--force").exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("where", "only", "sentence"),
    [
        ("new", "skwe", "no claim is named 'skwe', .*skew"),
        ("new", "0", "no claim is named '0', nor has it a number from 1 to 10"),
        ("new", "skew,", "no claim is named ''"),
        ("new", "11", "no claim is named '11', nor has it a number from 1 to 10"),
        ("file", "skew", "file is a file; give a directory"),
        ("none/here", "skew", "there is no directory .*none"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path: Path, where: str, only: str, sentence: str) -> None:
    (tmp_path / "file").touch()
    result = run("-o", str(tmp_path / where), "--only", only)
    assert result.exit_code == 1
    assert re.search(sentence, result.stderr)
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    result = run("-o", str(tmp_path / "new"), "--only", "skew")
    assert result.exit_code == 1
    assert "new cannot be written: Read-only file system" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_permission_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("latency_model.views.save.os.access", lambda path, mode: mode != os.W_OK)
    for where in (tmp_path, tmp_path / "new"):
        result = run("-o", str(where), "--only", "skew")
        assert result.exit_code == 1
        assert "cannot be written: no permission in" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failure_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(theme: str) -> gallery.Claim:
        raise lm.InputError("a claim that cannot be built")

    monkeypatch.setitem(gallery.CLAIMS, "skew", broken)
    assert run("-o", str(tmp_path / "gallery"), "--only", "skew").exit_code == 1
    assert list(tmp_path.iterdir()) == []
