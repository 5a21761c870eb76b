"""The explorer without Dash: an address holds a choice, whatever comes is checked, answers are those of the library."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from urllib.parse import quote, urlencode

import attrs
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import latency_model as lm
from latency_model.cli import main
from latency_model.errors import InputError
from latency_model.specs.dtypes import DTYPES
from latency_model.specs.quantization import FORMATS
from latency_model.views.explorer.answer import FIGURES, Answer, heading
from latency_model.views.explorer.controls import CONTROLS, TITLES, control_values, explanation, state_values
from latency_model.views.explorer.presets import presets
from latency_model.views.explorer.state import ACTIVATIONS, DRAFTERS, FALLBACKS, LARGEST_UPLOAD, LIMITS, UPLOADED, State

CONFIG = (Path(lm.__file__).parent / "specs" / "bundled_models" / "Llama-3.2-1B.json").read_text()
PROFILE = 'extends = "h100-sxm"\nid = "ours"\ntitle = "Our device"\n[memory]\nbandwidth = "2 TB/s"\n'
EVIL = "<img src=x onerror=alert(1)>"

shares = st.floats(0.0, 1.0)
vectors = st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=1, max_size=8)
acceptances = st.one_of(
    st.just(""),
    shares.map(str),
    vectors.map(lambda values: ",".join(map(str, values))),
    st.sampled_from(sorted(presets())).map("preset:{}".format),
    st.just("len:2.73@3"),
)
states = st.builds(
    State,
    model=st.sampled_from([*lm.model_names(), UPLOADED]),
    hardware=st.sampled_from([*lm.hardware_names(), UPLOADED]),
    draft=st.sampled_from(sorted(DRAFTERS)),
    draft_model=st.sampled_from(lm.model_names()),
    acceptance=acceptances,
    weights=st.sampled_from(["", *FORMATS]),
    kv_dtype=st.sampled_from(["", *DTYPES]),
    activations=st.sampled_from(ACTIVATIONS),
    fallback=st.sampled_from(sorted(FALLBACKS)),
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "none"]),
    persistence=shares,
    stickiness=shares,
    popularity_cv=st.floats(0.0, 16.0),
    kv_reread=shares,
    config=st.one_of(st.just(""), st.just(CONFIG), st.text(st.characters(exclude_categories=["Cs"]), max_size=200)),
    device=st.one_of(st.just(""), st.just(PROFILE)),
    **{name: st.integers(*limits) for name, limits in LIMITS.items() if name != "draft_length"},
    draft_length=st.one_of(st.none(), st.integers(*LIMITS["draft_length"])),
)


#: Choices of which many have an answer.
usual = st.builds(
    State,
    model=st.sampled_from(lm.model_names()),
    hardware=st.sampled_from([name for name in lm.hardware_names() if "cpu" not in name]),
    draft=st.sampled_from(sorted(DRAFTERS)),
    acceptance=acceptances,
    batch=st.integers(1, 300),
    context=st.integers(0, 50_000),
    draft_length=st.one_of(st.none(), st.integers(*LIMITS["draft_length"])),
    tp=st.sampled_from([1, 2, 4, 8]),
    dp=st.sampled_from([1, 2]),
    weights=st.sampled_from(["", "fp8", "int4"]),
    kv_dtype=st.sampled_from(["", "fp8"]),
    fallback=st.just("wider"),
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "none"]),
    persistence=shares,
    stickiness=shares,
    popularity_cv=st.floats(0.0, 16.0),
    kv_reread=shares,
)


@given(states)
@example(State(draft_length=0))
def test_an_address_gives_the_same_choice_back(state):
    assert not state.left_out
    assert State.from_query(state.query) == state
    assert State.from_query(f"?{state.query}") == state


@given(states)
def test_the_controls_give_the_same_choice_back(state):
    values = state_values(control_values(state)) | {"config": state.config, "device": state.device}
    assert State.of(json.loads(json.dumps(values))) == state


def test_the_default_needs_no_address():
    assert State().query == ""
    assert State.from_query("") == State.from_query("?") == State()


def test_a_file_too_long_for_an_address_is_left_out_and_missed():
    noise = np.random.default_rng(1).integers(33, 127, 9000)
    state = State(model=UPLOADED, config="".join(map(chr, noise)))
    assert state.left_out == ("config.json",)
    assert len(state.query) < 100
    with pytest.raises(InputError, match="upload it again"):
        Answer.of(State.from_query(state.query))


HOSTILE = {
    "batch=0": "batch must be a whole number from 1 to 4096, got '0'",
    "batch=1e9": "batch must be",
    "batch=nan": "batch must be",
    "batch=": "batch must be",
    "context=-1": "context must be",
    "draft_length=99": "draft length must be",
    "model=/etc/passwd": "model '/etc/passwd' is not known",
    "model=../Qwen3-8B.json": "is not known",
    "hardware=hardware_profiles/h100-sxm.toml": "hardware 'hardware_profiles/h100-sxm.toml' is not known",
    "draft_model=/etc": "draft model '/etc' is not known",
    f"model={quote(EVIL)}": "is not known",
    "acceptance=1.5": "acceptance: α must be from 0 to 1",
    "acceptance=preset:nobody": "no published acceptance is named 'nobody'",
    "acceptance=" + ".9," * 300: "acceptance must be text of at most 400 bytes",
    "persistence=2": "routing persistence must be a number from 0 to 1",
    "colour=red": "'colour' is nothing that can be chosen",
    "batch=1&batch=2": "gives a choice twice",
    "batch": "cannot be read",
    "%ff=%fe": "cannot be read",
    "config=***": "damaged",
    "config=eJw": "damaged",
    "x=" + "y" * 30_000: "more than the 20,000",
}


@pytest.mark.parametrize(("query", "sentence"), HOSTILE.items(), ids=[query[:30] for query in HOSTILE])
def test_a_hostile_address_is_a_sentence(query, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        State.from_query(query)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
@example("config=eNoDAAAAAAE")
def test_any_address_is_a_choice_or_a_sentence(query):
    with contextlib.suppress(InputError):  # and nothing else
        State.from_query(query)


def test_a_file_that_unfolds_beyond_the_limit_is_refused():
    bomb = State(model=UPLOADED, config="a" * LARGEST_UPLOAD)
    assert State.from_query(bomb.query) == bomb
    for size, sentence in ((LARGEST_UPLOAD + 1, "at most"), (8 * LARGEST_UPLOAD, "damaged")):
        packed = base64.urlsafe_b64encode(zlib.compress(b"a" * size, 9)).decode().rstrip("=")
        with pytest.raises(InputError, match=sentence):
            State.from_query(urlencode({"config": packed}))


@pytest.mark.parametrize("value", [None, True, 1.5, "many", [], float("inf"), 10**400])
def test_a_control_without_a_usable_number_is_a_sentence(value):
    with pytest.raises(InputError, match="batch must be a whole number"):
        State.of({"batch": value})


def test_a_text_that_is_no_unicode_is_a_sentence():
    with pytest.raises(InputError, match="the config must be text"):
        State.of({"config": "\ud800"})


def test_every_control_is_named_and_explained():
    for name in CONTROLS:
        if name != "acceptance_form":  # its options speak for themselves
            assert TITLES[name]
            assert len(explanation(name)) > 10


def test_the_answer_is_that_of_the_library():
    state = State(batch=8, context=2048, tp=2, kv_dtype="fp8")
    answer = Answer.of(state)
    plan = lm.optimize(
        state.model,
        state.hardware,
        draft="eagle3",
        acceptance=lm.Acceptance.parse(state.acceptance),
        batch=8,
        context=2048,
        parallelism=lm.Parallelism(tp=2),
        dtypes=lm.DTypes(kv="fp8"),
    )
    (expected,) = plan.rows()
    for name in ("draft_length", "speedup", "speedup_low", "speedup_high", "tpot_s", "break_even_acceptance", "fits"):
        assert answer.row[name] == pytest.approx(expected[name]), name
    assert answer.sentence.startswith(
        f"Draft {expected['draft_length']} tokens a round: {expected['speedup']:.2f} times"
    )


@settings(max_examples=10)
@given(usual)
def test_any_choice_has_an_answer_or_a_sentence(state):
    try:
        answer = Answer.of(state)
    except InputError as error:
        answer = error
    assert "\n" not in (answer.sentence if isinstance(answer, Answer) else str(answer))


def test_the_sentence_says_what_to_do():
    assert Answer.of(State(acceptance="0.05", batch=8)).sentence.startswith("Do not speculate here: ")
    assert Answer.of(State(draft_length=1)).remarks[0].startswith("With the 1 drafted tokens chosen, the speedup is 1.")
    crowded = Answer.of(State(batch=4096))
    most = crowded.row["largest_batch"]
    assert f"beside the weights there is room for {most} sequences" in crowded.sentence
    assert Answer.of(State(batch=most)).row["fits"]
    assert not Answer.of(State(batch=most + 1)).row["fits"]


def test_a_device_without_a_format_has_an_answer_where_a_wider_one_may_stand_in():
    state = State(model="Qwen3-0.6B", hardware="a10", weights="fp8", batch=1)
    with pytest.raises(InputError, match="has no fp8 peak"):
        Answer.of(state)
    json.dumps(Answer.of(attrs.evolve(state, fallback="wider")).drawn(), allow_nan=False)


@pytest.mark.parametrize("draft", sorted(DRAFTERS))
def test_every_drafter_has_an_answer(draft):
    answer = Answer.of(State(draft=draft, model="Qwen3-8B", acceptance="", batch=4))
    assert answer.sentence.endswith(".")
    for engine in ("vllm", "sglang", "trtllm"):
        settings_ = answer.settings(engine)
        assert settings_.text or settings_.notes


@pytest.mark.parametrize(
    "state",
    [
        State(),
        State(model="Qwen3-8B", batch=3, draft_length=4),
        State(model="DeepSeek-V3", hardware="h200-sxm", tp=8, ep=8, batch=4096),
        State(model="Qwen3-8B", context=300_000, batch=1),
    ],
    ids=["default", "dense", "large", "long"],
)
def test_every_figure_is_plain_data_with_the_choice_marked(state):
    drawn = Answer.of(state).drawn()
    assert tuple(drawn) == FIGURES
    json.dumps(drawn, allow_nan=False)
    assert all(heading(figure) for figure in drawn.values())
    assert drawn["map"]["data"][-1]["x"] == [state.batch]
    assert drawn["batch"]["layout"]["shapes"][-1]["x0"] == state.batch


def test_moving_over_the_map_does_not_draw_on_it_twice():
    marks = [
        [trace for trace in Answer.of(State(batch=batch)).drawn()["map"]["data"] if trace.get("name") == "your choice"]
        for batch in (2, 4)
    ]
    assert [[mark["x"] for mark in on_one] for on_one in marks] == [[[2]], [[4]]]


def test_the_memory_figure_adds_up():
    point = lm.speculate("Qwen3-30B-A3B", "h100-sxm", batch=8, context=4096, draft_length=3)
    figure = lm.figures.memory(point)
    bars = {trace.name: trace.x[0] for trace in figure.data if trace.type == "bar"}
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", batch=8, context=4096, max_draft_length=3)
    assert plan.draft_length == 3
    assert sum(bars.values()) * 1e9 == pytest.approx(
        float(plan.memory.total[0] if plan.memory.total.ndim else plan.memory.total)
    )


def test_an_uploaded_config_and_profile_are_read_like_files():
    state = State(model=UPLOADED, hardware=UPLOADED, config=CONFIG, device=PROFILE)
    answer = Answer.of(State.from_query(state.query))
    assert answer.title == "model on Our device"
    assert answer.plan.best.setting.hardware.memory_bandwidth.value == 2e12
    assert answer.plan.best.setting.model.total_parameters == lm.load_model("Llama-3.2-1B").total_parameters


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("", "upload it again"),
        ("{", "the uploaded config: is not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"model_type": "llama"}', "config: "),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("[" * 100_000, "the uploaded config: is "),
    ],
)
def test_a_broken_config_is_a_sentence(config, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        Answer.of(State(model=UPLOADED, config=config))


def test_a_name_fits_a_line_whatever_a_config_calls_itself():
    config = json.dumps(json.loads(CONFIG) | {"_name_or_path": "a\x1b[31m\u202e\r\nb" + "c" * 100_000})
    subject = Answer.of(State(model=UPLOADED, config=config)).subject
    assert subject.isprintable()
    assert len(subject) < 200


def test_a_byte_order_mark_is_no_part_of_a_file():
    device = '\ufeffextends = "h100-sxm"\nid = "ours"\n'
    assert Answer.of(State(hardware=UPLOADED, device=device, model=UPLOADED, config="\ufeff" + CONFIG)).subject


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("", "upload it again"),
        ("[memory", "the uploaded profile is not valid TOML"),
        ("a = 1", "the uploaded profile: "),
        ('extends = "/etc/hostname"', "only shipped profiles"),
        ('extends = "../secret.toml"', "only shipped profiles"),
        ('extends = "h100"\n[efficiency]\nfrom = ["~/x.toml"]', "only shipped profiles"),
        ('extends = "h100"\n[efficiency]\nfrom = "/etc/hostname"', "only shipped profiles"),
    ],
)
def test_a_broken_profile_is_a_sentence(device, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        Answer.of(State(hardware=UPLOADED, device=device))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (State(tp=3), "tp must divide"),
        (State(ep=7), "ep must divide"),
        (State(model="DeepSeek-V3"), "weights need"),
        (State(pp=1000), "pp must not exceed the 48 layers"),
    ],
)
def test_what_cannot_be_is_a_sentence(state, sentence):
    with pytest.raises(InputError, match=sentence):
        Answer.of(state)


def test_a_name_that_is_markup_stays_text():
    config = json.dumps(json.loads(CONFIG) | {"_name_or_path": EVIL})
    answer = Answer.of(State(model=UPLOADED, config=config))
    assert EVIL in answer.subject  # text, which the page shows as it is
    page = answer.html()
    assert "<img src=x" not in page.replace(page[page.index("<script>") : page.index("</script>")], "")
    for figure in answer.drawn().values():
        assert "<img" not in json.dumps(figure)


def test_the_curve_is_kept_as_a_table():
    answer = Answer.of(State(batch=3))
    rows = list(csv.DictReader(io.StringIO(answer.csv())))
    assert [int(row["batch"]) for row in rows] == [1, 2, 3, 4, 8, 16, 32, 64, 128, 256]
    for row, speedup in zip(rows, answer.plan.speedup, strict=True):
        assert float(row["speedup"]) == pytest.approx(speedup)
        assert len(row["curve"].split()) == len(answer.plan.lengths)


def test_settings_of_every_engine_are_kept_in_one_text():
    text = Answer.of(State()).settings_text()
    assert "--speculative-config" in text
    assert "--speculative-algorithm EAGLE3" in text
    assert "decoding_type: Eagle3" in text


def test_presets_are_published_and_named_once():
    assert len({preset.title for preset in presets().values()}) == len(presets()) >= 30
    for name, preset in presets().items():
        assert preset.source
        assert State(acceptance=f"preset:{name}").accepted.conditionals == preset.acceptance.conditionals


def test_the_command_explains_itself_without_loading_dash():
    shown = CliRunner().invoke(main, ["explore", "--help"])
    assert shown.exit_code == 0
    assert "127.0.0.1" in shown.output
    code = "import sys; from latency_model.cli import main\ntry: main(['optimize'])\nexcept SystemExit: pass\n"
    code += "import latency_model.cli.explore\nsys.exit(bool({'dash', 'flask', 'werkzeug'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_without_dash_the_command_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dash", None)
    monkeypatch.delitem(sys.modules, "latency_model.views.explorer.app", raising=False)
    monkeypatch.delitem(sys.modules, "latency_model.views.explorer.layout", raising=False)
    shown = CliRunner().invoke(main, ["explore"])
    assert shown.exit_code == 1
    assert shown.stderr == "Error: the explorer needs Dash: pip install 'latency-model[explore]'\n"


def test_a_state_is_frozen_and_checked_again_when_changed():
    with pytest.raises(InputError):
        attrs.evolve(State(), batch=0)
