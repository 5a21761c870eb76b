"""Sphinx settings; `make docs` treats every warning as an error."""

import logging
import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "latency-model"
author = "the latency-model authors"
version = release = installed_version("latency-model")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "figures",
    "generated",
    "links",
    "mathml",
]
exclude_patterns = ["_build"]

# Pages that begin with "file_format: mystnb" are notebooks; every build runs them from the top.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 60  # [s] for one cell
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.WARNING)  # or each kernel announces itself

nitpicky = True  # a function that a page names must be in the reference; types, which are words here, need not
nitpick_ignore_regex = [("py:(class|data|meth|mod|attr)", ".*")]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # docstrings name the types in words
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_math_renderer = "mathml"
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"latency-model {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_copyright = False

RESULTS = ("Plan", "Round", "StepCost")  # nobody calls these classes, so their signatures only take up room


def hide_signature(app: Sphinx, what: str, name: str, *rest: object) -> tuple[str, None] | None:
    """Leave out the constructor of classes that only functions build."""
    return ("", None) if what == "class" and name.rpartition(".")[2] in RESULTS else None


def one_attribute_each(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Write ``low, high : float`` as two entries, since napoleon splits names among parameters only."""
    if what != "class" or "Attributes" not in lines:
        return
    start = lines.index("Attributes") + 2
    for at in reversed(range(start, len(lines))):
        if found := re.fullmatch(r"(\w+(?:, \w+)+) : (.*)", lines[at]):
            end = next((i for i in range(at + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
            names, body = found[1].split(", "), lines[at + 1 : end]
            lines[at:end] = [line for each in names for line in (f"{each} : {found[2]}", *body)]


def setup(app: Sphinx) -> None:
    """Connect the two to autodoc, ahead of napoleon."""
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-process-docstring", one_attribute_each, priority=400)
