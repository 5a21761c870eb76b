"""The README shows what the program prints; ``python tests/test_cli_readme.py`` writes the demo's output anew."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from latency_model.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DEMO = re.compile(r"(<!-- demo: .*? -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def demo_output() -> str:
    """What `make demo` prints at 100 columns, run from the words of the Makefile."""
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    program, *words = shlex.split(recipe[1].replace("\\\n", " "))
    assert program.endswith("latency-model")
    result = CliRunner(env={"COLUMNS": "100"}).invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_demo_in_the_readme_is_what_the_program_prints():
    shown = DEMO.search(README.read_text())[2]
    assert shown == demo_output(), "run `python tests/test_cli_readme.py` to write it anew"


def test_the_commands_in_the_readme_work():
    lines = re.findall(r"^\$ latency-model (.*)$", README.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line.replace("path/to/config.json", "Qwen3-30B-A3B"))
        assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code == 0, line


def test_the_python_in_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("1 ")


def test_the_figure_in_the_readme_shows_what_is_predicted():
    script = runpy.run_path(str(ROOT / "docs" / "readme_figure.py"))
    assert f"({script['PICTURE'].relative_to(ROOT)})" in README.read_text()
    shown = json.loads(script["NUMBERS"].read_text())
    now = script["numbers"](script["figure"]())
    assert shown.keys() == now.keys()
    for name, heights in now.items():  # 1 % is about a pixel
        assert heights == pytest.approx(shown[name], rel=0.01), "run `python docs/readme_figure.py` to draw it anew"


def test_the_figure_in_the_readme_is_small():
    picture = (ROOT / "docs" / "static" / "speedup.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 60_000


def test_the_links_in_the_readme_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


if __name__ == "__main__":
    README.write_text(DEMO.sub(lambda block: block[1] + demo_output() + block[3], README.read_text()))
