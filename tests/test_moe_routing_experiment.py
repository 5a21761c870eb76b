"""The routing experiment: its measurement and its estimators on routing that we make, its tables from its records."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from latency_model.evidence import routing_trace
from latency_model.evidence.published.record import DATA, read_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "experiments"))

from moe_routing import analyse, report, texts  # noqa: E402
from moe_routing.runs import RUNS, Run  # noqa: E402

EXPERTS, TOP_K = 16, 2
EACH_RUN = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
SMALL_RUNS = [run for run in RUNS if run.architecture.experts == 16]


def routed(preferences: np.ndarray, tokens: int, seed: int, *, kept: float = 0.0) -> np.ndarray:
    """Top-k by preference and noise; a token keeps all experts of the token before it with probability ``kept``.

    ``preferences`` are log-weights of shape [sequence, expert]; ids have the shape [sequence, token, k].
    """
    rng = np.random.default_rng(seed)
    noise = rng.gumbel(size=(len(preferences), tokens, EXPERTS))
    ids = np.argsort(-(preferences[:, None] + noise), axis=-1)[..., :TOP_K]
    for token in range(1, tokens):
        same = rng.random(len(preferences)) < kept
        ids[same, token] = ids[same, token - 1]
    return ids


def equally_popular(sequences: int) -> np.ndarray:
    return np.zeros((sequences, EXPERTS))


def own_half(sequences: int) -> np.ndarray:
    """Each sequence uses eight experts of its own alone."""
    rng = np.random.default_rng(0)
    allowed = np.argsort(rng.random((sequences, EXPERTS)), axis=-1) < EXPERTS // 2
    return np.where(allowed, 0.0, -1e9)


def test_the_measurement_is_the_mean_over_all_draws():
    ids = routed(np.random.default_rng(1).normal(size=(4, EXPERTS)), 5, 2, kept=0.3)
    sizes, lengths = np.array([1, 2, 3, 4]), np.array([1, 3, 5])
    measured = analyse.measured_unions(ids, EXPERTS, sequences=sizes, tokens=lengths)
    for (row, b), (column, n) in itertools.product(enumerate(sizes), enumerate(lengths)):
        windows = [[set(sequence[start : start + n].ravel()) for start in range(6 - n)] for sequence in ids]
        draws = [
            len(set().union(*chosen))
            for sequences in itertools.combinations(windows, b)
            for chosen in itertools.product(*sequences)
        ]
        assert measured[row, column] == pytest.approx(np.mean(draws))


def test_random_draws_tend_to_the_measurement():
    ids = routed(own_half(100), 24, 3, kept=0.2)
    for b, n in ((2, 4), (8, 2)):
        exact = analyse.measured_unions(ids, EXPERTS, sequences=np.array([b]), tokens=np.array([n])).item()
        drawn, error = routing_trace.measured_unions(ids, EXPERTS, sequences=b, tokens_per_sequence=n)
        assert abs(drawn - exact) < 4.0 * error


def test_with_uniform_routing_all_predictions_are_right():
    tables = analyse.analyse(routed(equally_popular(800), 48, 4)[None], EXPERTS)
    measured = np.array([row["measured"] for row in tables["unions"]])
    for name in report.PREDICTIONS:
        predicted = np.array([row[name] for row in tables["unions"]])
        np.testing.assert_allclose(predicted, measured, rtol=0.01, err_msg=name)


def test_overlaps_tell_how_often_a_token_keeps_its_experts():
    ids = routed(equally_popular(800), 48, 5, kept=0.3)
    layer = analyse.fit_overlaps(routing_trace.fit_routing(ids[None], EXPERTS).layers[0], ids)
    assert layer.stickiness == pytest.approx(0.3, abs=0.01)
    assert layer.persistence < 0.005
    np.testing.assert_allclose(analyse.predicted_overlaps(layer), analyse.measured_overlaps(ids, EXPERTS), rtol=0.03)


def test_overlaps_tell_how_few_experts_a_sequence_prefers():
    ids = routed(own_half(800), 48, 6)
    layer = analyse.fit_overlaps(routing_trace.fit_routing(ids[None], EXPERTS).layers[0], ids)
    by_chance = TOP_K / EXPERTS
    assert layer.persistence == pytest.approx((2 * by_chance - by_chance) / (1 - by_chance), abs=0.01)
    assert layer.stickiness < 0.01


def test_both_estimators_predict_batches_of_persistent_and_sticky_sequences():
    skew = np.linspace(-0.7, 0.7, EXPERTS)
    ids = routed(skew + np.random.default_rng(7).normal(size=(800, EXPERTS)), 48, 8, kept=0.2)
    rows = [row for row in analyse.analyse(ids[None], EXPERTS)["unions"] if row["tokens"] <= 16]
    worst = {name: max(abs(row[name] / row["measured"] - 1) for row in rows) for name in report.PREDICTIONS}
    assert worst["unions"] < 0.03
    assert worst["overlaps"] < 0.06
    assert worst["popularity"] > 0.10
    assert worst["uniform"] > worst["popularity"]


@pytest.fixture(scope="module")
def other_router() -> np.ndarray:
    """Routing record of a model that was trained separately, in the data of the package."""
    with np.load(DATA / "small_moe_routing_trace.npz") as file:
        return file["expert_ids"][:, :, 32:]


def test_the_measurement_agrees_with_draws_made_elsewhere(other_router):
    rows = read_table("small_moe_unions").rows
    deviations = []
    for layer, ids in enumerate(other_router):
        drawn = [{name: float(cell) for name, cell in row.items()} for row in rows if int(row["layer"]) == layer]
        sequences, tokens = (
            np.unique([row[name] for row in drawn]).astype(int) for name in ("sequences", "tokens_per_sequence")
        )
        exact = analyse.measured_unions(ids, 32, sequences=sequences, tokens=tokens)
        deviations += [
            (row["distinct_experts"] - u) / row["standard_error"]
            for row in drawn
            if row["standard_error"] > 0.0
            and (u := exact[row["sequences"] == sequences, row["tokens_per_sequence"] == tokens].item())
        ]
    assert np.sqrt(np.mean(np.square(deviations))) < 1.3
    assert np.max(np.abs(deviations)) < 4.5


def test_the_page_says_what_the_other_router_gives(other_router):
    predicted, measured = [], []
    for ids, layer in zip(other_router, routing_trace.fit_routing(other_router, 32).layers, strict=True):
        sequences, tokens = analyse.SEQUENCES[1:], analyse.TOKENS[analyse.TOKENS <= analyse.LONGEST_FITTED]
        measured.append(analyse.measured_unions(ids, 32, sequences=sequences, tokens=tokens))
        predicted.append(layer.distinct_experts(tokens, sequences[:, None]))
    error = 100.0 * np.abs(np.array(predicted) / np.array(measured) - 1.0)
    page = (ROOT / "docs" / "explanation" / "expert-unions.md").read_text(encoding="utf-8")
    assert f"median {np.median(error):.2f} %, worst {error.max():.1f} %" in page


def test_two_numbers_and_popularity_predict_batches_of_every_model():
    unions = report.read_csv("unions")
    for run in RUNS:
        here = (unions["run"] == run.name) & (unions["sequences"] > 1) & (unions["tokens"] <= analyse.LONGEST_FITTED)
        error = {name: np.abs(unions[name] / unions["measured"] - 1.0)[here] for name in report.PREDICTIONS}
        assert np.median(error["unions"]) < 0.005
        assert error["unions"].max() < 0.04
        assert all(error["unions"].max() < error[name].max() for name in ("uniform", "popularity", "equal"))


@EACH_RUN
def test_a_record_is_small_and_is_routing(run: Run):
    with np.load(run.trace) as file:
        ids, experts = file["expert_ids"], int(file["num_experts"])
    shape = run.architecture
    assert run.trace.stat().st_size < 300e3
    assert experts == shape.experts
    assert (ids.shape[0], ids.shape[-1]) == (shape.layers, shape.top_k)
    assert np.all(np.diff(ids.astype(int), axis=-1) > 0)
    assert ids.max() < experts


@pytest.mark.parametrize("run", SMALL_RUNS, ids=lambda run: run.name)
def test_the_records_give_the_results(run: Run):
    with np.load(run.trace) as file:
        tables = analyse.analyse(file["expert_ids"], int(file["num_experts"]))
    for table, rows in tables.items():
        kept = report.read_csv(table)
        here = kept["run"] == run.name
        for name in rows[0]:
            np.testing.assert_allclose(
                kept[name][here], [row[name] for row in rows], rtol=1e-3, atol=1e-4, err_msg=f"{table}: {name}"
            )


def test_the_pages_show_the_tables_that_the_results_give():
    page = (ROOT / "docs" / "explanation" / "expert-unions.md").read_text(encoding="utf-8")
    for subject, table in report.tables().items():
        assert table in page, f"expert-unions.md: the table of {subject} is not that of experiments/moe_routing"


def test_held_out_documents_are_not_trained_on():
    documents = [(f"{i:02d}", f"document {i:02d}".encode()) for i in reversed(range(20))]
    train, held_out, fingerprint = texts.split(iter(documents))
    assert held_out == [b"document 00", b"document 08", b"document 16"]
    assert not any(document in train for document in held_out)
    assert fingerprint != texts.split(iter(documents[:-1]))[2]


def test_documentation_is_prose_without_code():
    assert texts._without_examples("Adds.\n\n>>> 1 + 1\n2\n\nAnd more.") == "Adds.\n\n\nAnd more."


@pytest.mark.oracle
def test_experts_of_the_model_mix_what_the_router_chose():
    torch = pytest.importorskip("torch")
    from moe_routing.model import WIDTH, Experts

    torch.manual_seed(0)
    layer, x = Experts(8, 3), torch.randn(40, WIDTH)
    mixed, chosen, balance = layer(x)
    for token in range(40):
        gate = layer.router(x[token])[chosen[token]].softmax(-1)
        hidden = [torch.nn.functional.gelu(x[token] @ layer.up[e]) @ layer.down[e] for e in chosen[token]]
        expected = sum(g * h for g, h in zip(gate, hidden, strict=True))
        torch.testing.assert_close(mixed[token], expected, rtol=1e-4, atol=1e-5)
    assert balance > 0.9
