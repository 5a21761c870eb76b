"""The documentation holds: its examples run, its links lead somewhere, its numbering is the one code cites."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import latency_model as lm
from latency_model import formulas
from latency_model.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
FENCE = re.compile(r"^(`{3,})(\S*)[^\n`]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)

NOTEBOOKS = [page for page in PAGES if page.read_text().startswith("---\nfile_format: mystnb\n")]
MODELS = (
    "acceptance",
    "how-a-step-is-priced",
    "latency-under-load",
    "memory",
    "number-formats",
    "rounds-and-draft-length",
    "several-devices",
    "what-experts-cost",
    "why-the-sign-flips",
)
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))


def blocks(page: Path, language: str) -> list[str]:
    """Contents of a page's code blocks in one language."""
    return [body for _, name, body in FENCE.findall(page.read_text()) if name == language]


def prose(page: Path) -> str:
    """A page without its code blocks and its inline code."""
    return re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """What a link may point to on a page: its headings as slugs, and its labels."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", page.read_text(), re.MULTILINE))


def test_the_examples_on_all_pages_run(tmp_path):
    for page in PAGES:
        # The closing fence would be taken for output; blank lines keep the line numbers.
        text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)
        (tmp_path / f"{page.relative_to(DOCS).with_suffix('')}.txt".replace("/", "-")).write_text(text)
    flags = "doctest_optionflags=NUMBER NORMALIZE_WHITESPACE ELLIPSIS"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    run = subprocess.run(
        [*command, "-o", flags, f"--rootdir={tmp_path}", "--doctest-glob=*.txt", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout


@EACH_PAGE
def test_python_examples_are_doctests(page):
    for body in blocks(page, "pycon"):
        assert body.startswith(">>> ")
    for body in blocks(page, "python"):
        compile(body, str(page), "exec")


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_notebooks_run(page, monkeypatch, capsys):
    monkeypatch.chdir(page.parent)
    # The build brings IPython, which shows what a cell hands it; here only the cells count.
    shown = SimpleNamespace(Markdown=str, display=lambda *_: None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=shown))
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    namespace: dict[str, object] = {}
    for body in blocks(page, "{code-cell}"):
        exec(compile(re.sub(r"^:.*\n", "", body), page.name, "exec"), namespace)


@EACH_PAGE
def test_commands_on_a_page_work(page, monkeypatch, tmp_path):
    (tmp_path / "hardware_profiles").symlink_to(ROOT / "hardware_profiles")
    for file in {*page.parent.glob("*.*")} - {*page.parent.glob("*.md")}:  # what the page's commands read
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)  # what a command writes must not land in the repository
    shown = [
        line[2:]
        for body in blocks(page, "console")
        for line in body.replace("\\\n", " ").splitlines()
        if line.startswith("$ latency-model ")
    ]
    for written in [*shown, *(body.replace("\\\n", " ") for body in blocks(page, "{command}"))]:
        words = shlex.split(written)[1:]
        if not any(word.startswith(("path/", "./", "your-")) for word in words):
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, f"{written}: {result.output}"


@EACH_PAGE
def test_links_inside_the_documentation_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", MODELS)
def test_the_page_of_a_model_has_all_its_parts(page):
    text = (DOCS / "explanation" / f"{page}.md").read_text()
    headings = [heading.lower() for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)]
    assert any("by hand" in heading for heading in headings), "a number worked by hand"
    assert {"valid", "not modelled"} <= set(headings)
    assert ">>> " in text, "the number is checked"
    assert "equations.md" in text, "the equations it explains"


def test_the_equation_sheet_and_the_reference_name_every_formula():
    for page in (DOCS / "equations.md", DOCS / "reference" / "formulas.md"):
        text = page.read_text()
        missing = [name for name in formulas.__all__ if f"latency_model.formulas.{name}" not in text]
        assert not missing, f"{page.name} lacks {missing}"


def test_the_reference_documents_every_public_name():
    text = (DOCS / "reference" / "api.md").read_text()
    documented = re.findall(r"^\.\. auto\w+:: latency_model\.(\w+)$", text, re.MULTILINE)
    modules = {name for name in lm.__all__ if inspect.ismodule(getattr(lm, name))}
    assert set(documented) == set(lm.__all__) - modules


def test_the_reference_of_a_profile_has_the_fields_its_loader_reads(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "extensions")
    fields = importlib.import_module("profile_fields").profile_fields()  # raises where they differ
    assert all(meaning for *_, meaning in fields)


def test_each_equation_carries_the_number_of_its_heading():
    heading = ""
    seen = []
    for line in (DOCS / "equations.md").read_text().splitlines():
        if found := re.match(r"### (\d+\.\d+) ", line):
            heading = found[1]
        if found := re.search(r"\\tag\{([\d.]+)\}", line):
            seen.append(found[1])
            assert found[1].split(".")[0] == heading.split(".")[0], line
    assert len(seen) == len(set(seen))


def test_sections_and_equations_that_code_cites_exist():
    sheet = (DOCS / "equations.md").read_text()
    sections = set(re.findall(r"^## (\d+)\. ", sheet, re.MULTILINE))
    equations = set(re.findall(r"\\tag\{([\d.]+)\}", sheet)) | set(re.findall(r"^### ([\d.]+) ", sheet, re.MULTILINE))
    cited = 0
    for module in (ROOT / "latency_model").rglob("*.py"):
        text = re.sub(r"\s+", " ", module.read_text())
        for first, last in re.findall(r"equation(?:s\.md| sheet),? sections? (\d+)(?:-(\d+))?", text):
            wanted = set(map(str, range(int(first), int(last or first) + 1)))
            assert wanted <= sections, f"{module.relative_to(ROOT)} cites section {wanted - sections}"
            cited += 1
        for number in re.findall(r"equations\.md,? eq\. (\d+\.\d+)", text):
            assert number in equations, f"{module.relative_to(ROOT)} cites eq. {number}"
            cited += 1
    assert cited
