"""Sphinx settings; `make docs` treats every warning as an error."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "latency-model"
author = "the latency-model authors"
version = release = installed_version("latency-model")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "generated", "mathml"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # docstrings name the types in words
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"latency-model {release}"
html_static_path = ["static"]
html_css_files = ["pages.css"]
