"""Bad input: exit code 1 and one sentence for a value that cannot be used, 2 for a wrong command line, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from latency_model.cli import main
from latency_model.cli.options import DIALECTS

MODEL = ["-m", "Qwen3-30B-A3B", "-H", "h100-sxm"]


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def message_of(result) -> str:
    """The one sentence of a failed command."""
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-b", "0"], "batch must be at least 1"),
        (["-c", "-1"], "context must be at least 0"),
        (["-b", "nan"], "--batch: 'nan' is not a whole number"),
        (["-b", ""], "--batch: '' is not a whole number"),
        (["-b", "1,,4"], "--batch: '' is not a whole number"),
        (["-b", "8:1"], "--batch: the range '8:1' is empty"),
        (["-b", "1:8:0"], "--batch: the range '1:8:0' is empty"),
        (["-b", "1:2:3:4"], "--batch: '1:2:3:4' is not a whole number"),
        (["-c", "1:200000"], "--context: the range '1:200000' has more than 100,000 values"),
        (["-c", "1:1000", "-b", "1:1000"], "at most 100,000 pairs"),
        (["--acceptance", "1.2"], "acceptance: α must be from 0 to 1, got 1.2"),
        (["--acceptance", "nan"], "acceptance: α must be from 0 to 1"),
        (["--acceptance", "half"], "acceptance 'half' is not understood"),
        (["--tp", "3"], "tp must divide the 32 attention heads"),
        (["--tp", "two"], "'--tp': 'two' is not a valid integer"),
        (["--tp", "256", "--ep", "256"], "ep must not exceed the 128 routed experts"),
        (["--weights", "fp7"], "did you mean 'fp8'"),
        (["--draft", "eagle5"], "did you mean 'eagle'"),
        (["--draft", "ngram", "--draft-model", "Qwen3-0.6B"], "exclude each other"),
        (["--max-draft-length", "-1"], "max_draft_length must be an integer from 0"),
        (["--price", "nan"], "price must be a number"),
        (["--persistence", "2"], "persistence must be a number from 0 to 1"),
        (["--kv-reread", "-1"], "kv_reread must be from 0"),
        (["--isl", "-1"], "--isl and --osl must be at least 0"),
        (["--speculative-eagle-topk", "4"], "--speculative-eagle-topk must be 1"),
        (["--draft", "self", "--emit", "vllm"], "vLLM has no setting for a self-speculation drafter"),
        (["-b", "4096"], "the largest batch that fits is"),
        (["--engine", "llama"], "'llama' is not one of"),
    ],
)
def test_a_bad_value_is_one_sentence(arguments, said):
    assert said in message_of(run("optimize", *MODEL, *arguments))


@pytest.mark.parametrize(
    ("model", "hardware", "said"),
    [
        ("Qwen3-30B-A4B", "h100-sxm", "did you mean 'Qwen3-30B-A3B'"),
        ("Qwen3-8B", "h100-smx", "did you mean 'h100-sxm'"),
        ("nowhere/config.json", "h100-sxm", "is neither a bundled model nor a file"),
        ("Qwen3-8B", "nowhere/device.toml", "device.toml"),
        ("DeepSeek-V3", "h100-sxm", "try --tp 16"),
        ("", "h100-sxm", "model '' is neither a bundled model nor a file"),
        ("Qwen3-8B", "", "no hardware profile is named ''"),
        ("Qwen3-8B", "v100-sxm2", "would run at the fp16 rate"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(model, hardware, said):
    assert said in message_of(run("optimize", "-m", model, "-H", hardware))


def test_a_folder_without_a_config_and_a_config_that_is_not_json(tmp_path):
    assert "no config.json" in message_of(run("models", "show", str(tmp_path)))
    config = tmp_path / "config.json"
    config.write_text("{bad")
    assert "is not valid JSON" in message_of(run("models", "show", str(tmp_path)))
    config.write_text("[" * 1_000_000)
    assert "nested too deeply" in message_of(run("models", "show", str(config)))


def test_a_missing_format_runs_in_the_next_one_when_that_is_allowed():
    asked = ["optimize", "-m", "Qwen3-8B", "-H", "v100-sxm2", "-b", "1"]
    assert run(*asked).exit_code == 1
    assert run(*asked, "--allow-dtype-fallback").exit_code == 0


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["experts", "-m", "Qwen3-8B", "-H", "h100-sxm"], "is dense"),
        (["experts", "-n", "1:100000", "-b", "1,2"], "--batch and --tokens: at most 100,000 pairs, got 200,000"),
        (["optimize", "--acceptance", ""], "acceptance '' is not understood"),
        (["experts", "-n", "0"], "tokens_per_sequence must be at least 1"),
        (["explain", "-b", "1,2"], "--batch: at most 1 value"),
        (["explain", "--prefill", "0"], "tokens_per_sequence must be at least 1"),
        (["explain", "--draft-length", "-1"], "draft_length must be an integer from 0"),
        (["serve", "--rate", "0"], "rate must be from 1e-12 to 1e9 requests a second, got 0"),
        (["serve", "--rate", "-1"], "rate must be from 1e-12"),
        (["serve", "--rate", "nan"], "rate must be from 1e-12"),
        (["serve", "--rate", "1e10"], "requests a second, got 1e+10"),
        (["serve", "--rate", "many"], "--rate: 'many' is not a number"),
        (["serve", "--rate", "5:1:1"], "--rate: the range '5:1:1' is empty"),
        (["serve", "--rate", "1:20000:1"], "rate: at most 10,000 values, got 20,000"),
        (["serve", "-k", "-1"], "draft_length must be an integer from 0"),
        (["serve", "-k", "1:20"], "draft_length: at most 17 values, 0 among them, got 21"),
        (["serve", "--isl", "0"], "prompt_tokens must be at least 1"),
        (["serve", "--osl", "1"], "output_tokens must be at least 2"),
        (["serve", "--max-batch", "0"], "max_batch must be an integer from 1"),
        (["serve", "--slo-tpot", "20"], "--slo-tpot: '20' has no unit"),
        (["serve", "--slo-tpot", "-20ms"], "--slo-tpot: '-20ms' is not a number with a unit"),
        (["serve", "--slo-ttft", "20 GB"], "is a size"),
        (["serve", "--slo-latency", "0 s"], "the limit on latency must be a number of seconds above 0"),
        (["serve", "--isl", "2000000"], "not even one sequence of 2,000,128 tokens fits beside the weights"),
        (["serve", "-m", "DeepSeek-V3", "-H", "h100-sxm"], "try --tp 16"),
        (["serve", "--html", "page.pdf"], "page.pdf: the name must end in .html"),
        (["serve", "--html", "page.html", "--rate", "1"], "the figure needs several request rates"),
        (["serve", "--html", "nowhere/page.html"], "there is no directory nowhere"),
        (["hardware", "show", "h100-smx"], "did you mean 'h100-sxm'"),
        (["hardware", "diff", "h100-sxm", "h200-smx"], "did you mean 'h200-sxm'"),
        (["models", "diff", "Qwen3-8B", "Qwen3-9B"], "did you mean"),
    ],
)
def test_the_other_commands_say_what_is_wrong_too(command, said):
    result = run(*command)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert said in result.stderr.splitlines()[-1]


LONG = "a" * 300


@pytest.mark.parametrize(
    "command",
    [
        ["sweep", "-b", "1", "-o", f"{LONG}.csv"],
        ["sweep", "-b", "1", "-o", f"{LONG}/sweep.zarr"],
        ["sweep", "-b", "1", "--html", f"{LONG}.html"],
        ["serve", "--rate", "1,2", "--html", f"{LONG}.html"],
        ["gallery", "--only", "skew", "-o", LONG],
    ],
)
def test_a_name_too_long_to_be_a_file_is_one_sentence(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*command)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].endswith("cannot be written: File name too long")
    assert list(tmp_path.iterdir()) == []


def test_checking_a_faulty_profile_lists_the_faults_and_fails(tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text('id = "mine"\n')
    result = run("hardware", "check", str(profile), "--format", "csv")
    assert result.exit_code == 1
    assert "mine.toml" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["frobnicate"],
        ["optimize", "--bogus"],
        ["optimize", "extra"],
        ["optimize", "-m", "Qwen3-8B"],
        ["optimize", "--isl", "10", "-c", "10"],
        ["explain", "--draft", "eagle3"],
        ["explain", "--draft-length", "2", "--prefill", "2"],
        ["validate", "--page", "--format", "json"],
        ["hardware", "show"],
        ["models"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(command):
    result = run(*command)
    assert result.exit_code == 2
    assert "Usage: " in result.output


def test_a_bug_is_not_dressed_up_as_a_mistake_of_the_user(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("latency_model.optimize", broken, raising=False)
    with pytest.raises(ZeroDivisionError):
        run("optimize")


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.run(
        f"{sys.executable} -m latency_model optimize -b 1:400 --format csv | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout.startswith("batch,")
    assert "Traceback" not in process.stderr
    assert "Exception" not in process.stderr


SPELLINGS = {
    "--draft-length": "2",
    "--max-draft-length": "2",
    "--draft": "eagle3",
    "--draft-model": "Qwen3-0.6B",
    "--tp": "2",
    "--ep": "1",
    "--pp": "2",
    "--dp": "2",
    "--batch": "3",
    "--kv-dtype": "fp8",
    "--weights": "fp8",
}


@pytest.mark.parametrize("command", ["optimize", "explain"])
@pytest.mark.parametrize("spelling", sorted(DIALECTS))
@pytest.mark.parametrize("joined", [False, True])
def test_engine_spellings_mean_ours(command, spelling, joined):
    ours = next(option for option in DIALECTS[spelling] if (option == "--draft-length") <= (command == "explain"))
    value = SPELLINGS[ours]
    more = ["--draft-length", "2"] if command == "explain" and ours.startswith("--draft") else []
    more = [] if ours == "--draft-length" else more

    def printed(option):
        words = [f"{option}={value}"] if joined else [option, value]
        return run(command, *words, *more, "--format", "json")

    assert printed(spelling).exit_code == 0
    assert printed(spelling).stdout == printed(ours).stdout


@pytest.mark.parametrize("command", ["optimize", "explain", "experts", "serve", "hardware list", "models show"])
def test_help_shows_an_example(command):
    for flag in ("-h", "--help"):
        assert f"latency-model {command}" in run(*command.split(), flag).stdout


def completions(words: str) -> list[str]:
    """What a shell would offer for the last of some words."""
    process = subprocess.run(
        [sys.executable, "-m", "latency_model"],
        env={
            **os.environ,
            "_LATENCY_MODEL_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in process.stdout.splitlines()]


def test_shells_complete_commands_models_and_devices():
    assert completions("latency-model opt") == ["optimize"]
    assert "Qwen3-30B-A3B" in completions("latency-model optimize -m qwen3-30")
    assert "h100-sxm" in completions("latency-model optimize -H h10")
    assert "h100-sxm" in completions("latency-model hardware show h10")
