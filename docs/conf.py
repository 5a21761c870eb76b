"""Sphinx settings; `make docs` treats every warning as an error."""

from importlib.metadata import version as installed_version

project = "latency-model"
author = "the latency-model authors"
version = release = installed_version("latency-model")

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"latency-model {release}"
