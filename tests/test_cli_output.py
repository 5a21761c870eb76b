"""What commands print: valid JSON for programs, tables that fit the terminal, the same numbers as Python gives."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import latency_model as lm
from latency_model.cli import main

SCHEMA = json.loads(resources.files("latency_model.cli").joinpath("schema.json").read_text())
VECTOR = ".70,.62,.60,.58"

# Command, what it is in the schema, arguments.
CALLS = [
    ("optimize", []),
    ("optimize", ["-m", "Qwen3-8B", "-H", "a100-sxm-80gb", "-b", "1:4", "-c", "0:2048:1024", "--emit", "vllm"]),
    ("optimize", ["--max-draft-length", "0", "--emit", "trtllm"]),
    ("optimize", ["--draft", "self"]),
    ("optimize", ["-m", "DeepSeek-V3", "-H", "h200-sxm", "--tp", "8", "--ep", "8", "--draft", "mtp", "--price", "2"]),
    ("explain", []),
    ("explain", ["--draft", "eagle3", "--draft-length", "3", "--tp", "2", "--isl", "100", "--osl", "50"]),
    ("explain", ["--prefill", "256"]),
    ("experts", ["-b", "1,4", "-n", "1:3"]),
    ("serve", ["--slo-tpot", "20ms"]),
    (
        "serve",
        ["-m", "Meta-Llama-3.1-8B", "-H", "h100-sxm", "-k", "1,3", "--rate", "1,40", "--isl", "128", "--osl", "64"],
    ),
    (
        "serve",
        ["-m", "DeepSeek-V3", "-H", "h200-sxm", "--tp", "8", "--ep", "8", "--draft", "mtp", "-k", "0", "--rate", "9"],
    ),
    ("hardware list", []),
    ("hardware show", ["h100-sxm"]),
    ("hardware show", ["cerebras-wse-3"]),
    ("hardware diff", ["h100-sxm", "h200-sxm"]),
    ("hardware check", []),
    ("models list", []),
    ("models show", ["DeepSeek-V3.2"]),
    ("models show", ["Qwen3.5-35B-A3B"]),
    ("models diff", ["Qwen3-8B", "gpt-oss-20b"]),
]


def run(command: str, *arguments: str, **environment: str):
    """Call a command in this process."""
    return CliRunner(env=environment).invoke(main, [*command.split(), *arguments], catch_exceptions=False)


def refuse_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_json_keeps_to_the_schema_and_leaves_standard_error_to_notes(command, arguments):
    result = run(command, *arguments, "--format", "json")
    document = json.loads(result.stdout, parse_constant=refuse_constant)
    schema = {"$ref": f"#/$defs/{command.replace(' ', '%20')}", "$defs": SCHEMA["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)
    assert result.exit_code == 0


def test_a_wrong_document_breaks_the_schema():
    document = json.loads(run("optimize", "--format", "json").stdout)
    document["rows"][0]["speed_up"] = 1.0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, {"$ref": "#/$defs/optimize", "$defs": SCHEMA["$defs"]})


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_csv_holds_the_rows_of_the_json(command, arguments):
    rows = json.loads(run(command, *arguments, "--format", "json").stdout)["rows"]
    read = list(csv.DictReader(io.StringIO(run(command, *arguments, "--format", "csv").stdout)))
    assert len(read) == len(rows)
    for text, row in zip(read, rows, strict=True):
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert float(text[key]) == value
            elif isinstance(value, str):
                assert text[key] == value


@pytest.mark.parametrize(("command", "arguments"), CALLS)
def test_markdown_is_a_rectangle(command, arguments):
    head, rule, *rows = run(command, *arguments, "--format", "md").stdout.splitlines()
    assert set(rule) <= set("|-: ")
    assert {line.replace("\\|", "").count("|") for line in (head, rule, *rows)} == {head.count("|")}


STEPS = str(Path(__file__).parents[1] / "docs" / "tutorials" / "steps-llama-2-7b.csv")
LONG_TABLES = [
    (
        "sweep",
        [
            "-m",
            "Qwen3-8B",
            "-m",
            "DeepSeek-V3",
            "-H",
            "h200",
            "--tp",
            "8",
            "--ep",
            "1,8",
            "-b",
            "1:2",
            "-k",
            "0:1",
            "--engine",
            "sglang-0.4,vllm",
        ],
    ),
    ("calibrate", [STEPS, "-m", "Llama-2-7b-hf", "-H", "a100-sxm-80gb", "--tp", "8", "--engine", "none"]),
]


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(("command", "arguments"), [*CALLS, *LONG_TABLES])
def test_tables_fit_the_terminal(command, arguments, width):
    shown = [word for word in arguments if word not in ("--emit", "vllm", "trtllm")]  # a setting is one line
    lines = run(command, *shown, COLUMNS=str(width)).stdout.splitlines()
    pasted = next((i for i, line in enumerate(lines) if line.startswith("Paste into")), len(lines))
    too_long = [line for line in lines[:pasted] if len(line) > width and " " in line.strip()]  # but a bare address
    assert too_long == []


@pytest.mark.parametrize("setting", ["1", "0"])
def test_no_color_is_respected(setting):
    coloured = CliRunner().invoke(main, ["experts"], color=True)
    plain = CliRunner(env={"NO_COLOR": setting}).invoke(main, ["experts"], color=True)
    assert "\x1b[" in coloured.output
    assert "\x1b[" not in plain.output


def test_optimize_prints_what_python_returns():
    arguments = ["-m", "Qwen3-30B-A3B", "-H", "h100-sxm", "--acceptance", VECTOR, "-b", "1,4,64", "-c", "1024,4096"]
    printed = json.loads(run("optimize", *arguments, "--draft", "eagle3", "--format", "json").stdout)
    plan = lm.optimize(
        "Qwen3-30B-A3B",
        "h100-sxm",
        draft=lm.Draft.eagle(),
        acceptance=lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58]),
        batch=[1, 4, 64],
        context=[1024, 4096],
    )
    assert printed["rows"] == plan.rows()
    assert tuple(printed["assumptions"]) == plan.assumptions
    assert tuple(printed["not_modelled"]) == plan.not_modelled
    assert tuple(printed["sources"]) == plan.sources


def test_where_nothing_is_drafted_nothing_can_gain():
    arguments = ("optimize", "-m", "Qwen3-8B", "-H", "h100-sxm", "--acceptance", "0", "-b", "8")
    (row,) = json.loads(run(*arguments, "--format", "json").stdout)["rows"]
    assert (row["draft_length"], row["speedup_probability"]) == (0, 0.0)
    shown = next(line.split() for line in run(*arguments).stdout.splitlines() if line.startswith("    8"))
    assert shown[1:5] == ["0", "1.00", "1.00-1.00", "-"]


def test_explain_says_how_sure_it_is():
    arguments = ("explain", "-m", "Qwen3-8B", "-H", "h100-sxm", "-b", "16", "--draft-length", "3")
    totals = json.loads(run(*arguments, "--format", "json").stdout)["totals"]
    for name in ("time_s", "baseline_time_s", "tpot_s", "speedup"):
        low, high = (name.removesuffix("_s") + end + ("_s" if name.endswith("_s") else "") for end in ("_low", "_high"))
        assert totals[low] < totals[name] < totals[high], name
    assert 0.5 < totals["speedup_probability"] < 1.0
    assert "80 % intervals: round " in " ".join(run(*arguments).stdout.split())
    step = json.loads(run("explain", "-m", "Qwen3-8B", "-H", "h100-sxm", "--format", "json").stdout)["totals"]
    assert step["time_low_s"] < step["time_s"] < step["time_high_s"]


def test_explain_adds_up_to_the_step_python_times():
    printed = json.loads(run("explain", "-m", "Qwen3-8B", "-H", "h100-sxm", "-b", "16", "--format", "json").stdout)
    step = lm.step_cost("Qwen3-8B", "h100-sxm", batch=16, context=4096)
    assert printed["totals"]["time_s"] == pytest.approx(float(step.time), rel=1e-12)
    assert printed["totals"]["traffic_bytes"] == pytest.approx(float(step.traffic), rel=1e-12)
    assert math.fsum(row["share"] for row in printed["rows"]) == pytest.approx(1.0)


def test_serve_prints_what_python_returns():
    arguments = ["-m", "Qwen3-30B-A3B", "-H", "h100-sxm", "--acceptance", VECTOR, "--draft", "eagle3", "-k", "1,3"]
    more = ["--rate", "1:21:5", "--isl", "512", "--osl", "128", "--slo-tpot", "20ms", "--slo-latency", "3 s"]
    printed = json.loads(run("serve", *arguments, *more, "--format", "json").stdout)
    curve = lm.serve(
        "Qwen3-30B-A3B",
        "h100-sxm",
        acceptance=lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58]),
        draft_length=[1, 3],
        rate=[1, 6, 11, 16, 21],
        prompt_tokens=512,
        output_tokens=128,
    )
    assert printed["rows"] == curve.rows()
    within = curve.goodput(tpot=0.02, latency=3.0)
    for row, own, rate in zip(printed["draft_lengths"], curve.summary(), within, strict=True):
        assert row == own | {"goodput_per_s": rate}
    assert tuple(printed["assumptions"]) == curve.assumptions


def test_the_page_of_a_served_curve_shows_what_is_promised(tmp_path):
    page = tmp_path / "load.html"
    result = run("serve", "--rate", "1:9:2", "--slo-tpot", "15 ms", "--html", str(page))
    assert result.stdout == ""
    text = page.read_text(encoding="utf-8")
    latency, tpot = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    assert latency["layout"]["meta"]["title"] == "Mean latency of a request against request rate"
    assert any(trace.get("name") == "highest rate within 15 ms" for trace in tpot["data"])


def test_a_rate_beyond_saturation_is_shown_as_full():
    arguments = ["-m", "Qwen3-8B", "-H", "h100-sxm", "--rate", "1,1000"]
    low, *_, high = json.loads(run("serve", *arguments, "--format", "json").stdout)["rows"]
    assert (low["saturated"], high["saturated"]) == (False, True)
    assert (high["latency_s"], high["speedup"]) == (None, None)
    table = run("serve", *arguments).stdout
    assert any(line.split()[:2] == ["1000", "3"] and "full" in line for line in table.splitlines())


def test_moving_data_between_devices_is_no_work():
    rows = json.loads(run("explain", "--tp", "4", "--format", "json").stdout)["rows"]
    assert [row["flops"] for row in rows if row["group"] == "communication"] == [0.0]


def test_explain_adds_up_to_the_round_python_times():
    arguments = ["-m", "Qwen3-8B", "-H", "h100-sxm", "--draft", "eagle3", "--acceptance", ".7", "--draft-length", "3"]
    printed = json.loads(run("explain", *arguments, "-b", "16", "--format", "json").stdout)
    round_ = lm.speculate("Qwen3-8B", "h100-sxm", acceptance=0.7, draft_length=3, batch=16, context=4096)
    assert printed["totals"]["time_s"] == pytest.approx(float(round_.time), rel=1e-12)
    assert printed["totals"]["speedup"] == float(round_.speedup)
    assert {row["phase"] for row in printed["rows"]} == {"draft", "verify", "overhead"}


def test_the_example_says_so_and_resolves_everything():
    result = run("optimize", "--format", "json")
    assert "example" in result.stderr
    inputs = json.loads(result.stdout)["inputs"]
    assert inputs["model"] == "Qwen3-30B-A3B"
    assert inputs["acceptance"] == [0.70, 0.62, 0.60, 0.58]
    assert inputs["batch"] == [1, 4, 16, 64, 256]


def test_a_batch_that_does_not_fit_is_marked_and_the_largest_is_named():
    table = run("optimize", "-b", "1,64").stdout
    rows = json.loads(run("optimize", "-b", "1,64", "--format", "json").stdout)["rows"]
    assert [row["fits"] for row in rows] == [True, False]
    assert " 64!" in table
    assert f"{rows[1]['largest_batch']:.0f} sequences fit" in table


def test_isl_and_osl_give_the_context_in_the_middle_of_the_reply():
    document = json.loads(run("optimize", "--isl", "4096", "--osl", "1024", "--format", "json").stdout)
    assert document["inputs"]["context_tokens"] == [4608]
    assert any("isl 4096" in sentence for sentence in document["assumptions"])


def test_emitting_prints_the_setting_alone():
    result = run("optimize", "--emit", "vllm")
    assert result.stdout.startswith("--speculative-config ")
    assert len(result.stdout.splitlines()) == 1
    assert "Assumed:" in result.stderr


def test_emitting_nothing_when_plain_decoding_is_best():
    result = run("optimize", "--acceptance", "0", "--draft", "eagle3", "--emit", "sglang")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "plain decoding is best" in result.stderr
