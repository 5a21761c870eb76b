"""Figures of executed pages draw from one copy of plotly.js beside the pages, so nothing comes from a network.

A page's kernel writes a figure as HTML that asks a network for plotly.js. Here the request is taken out, the page
gets the local copy, and ``static/figures.js`` lets figures follow the theme and the width of the page.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import tempfile
from pathlib import Path

import plotly.offline
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from latency_model.views.figures.style import template

LOG = logging.getLogger(__name__)
REQUEST = re.compile(r"<script[^>]*( src=\"|>import \")https://[^<]*</script>")
DRAWING = re.compile(r"<script>(?=\s*window\.PLOTLYENV)")
FROM_A_NETWORK = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"https?:[^\"]*"
    r"|<link[^>]* rel=\"stylesheet\"[^>]*\"https?:[^\"]*"
    r"|<script[^>]*>import \"https?:[^\"]*"
)


def kernels() -> None:
    """Start kernels alike wherever pages are built: with this configuration, not with that of the user."""
    folder = tempfile.TemporaryDirectory(prefix="latency-model-docs-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    profile = Path(folder.name) / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
    os.environ |= {"IPYTHONDIR": folder.name, "PLOTLY_RENDERER": "notebook_connected"}


def local(app: Sphinx, doctree: nodes.document) -> None:
    """Take requests to a network out of drawn figures, and draw once plotly.js is there."""
    for node in doctree.findall(nodes.raw):
        if "PlotlyConfig" in node.astext():
            # A module runs after the scripts at the foot of the page.
            text = DRAWING.sub('<script type="module">', REQUEST.sub("", node.astext()))
            node.replace_self(nodes.raw("", text, format="html", classes=["figure"]))


def scripts(app: Sphinx, page: str, template_name: str, context: dict[str, object], doctree: nodes.document) -> None:
    """Give pages with figures, and only these, what draws them."""
    if doctree and any("PLOTLYENV" in node.astext() for node in doctree.findall(nodes.raw)):
        app.add_js_file("plotly.min.js")
        app.add_js_file("figure-templates.js")
        app.add_js_file("figures.js", loading_method="defer")


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the scripts, and look whether any page still asks a network for anything."""
    if error or app.builder.format != "html":
        return
    static = app.outdir / "_static"
    (static / "plotly.min.js").write_text(plotly.offline.get_plotlyjs(), encoding="utf-8")
    templates = {theme: template(theme).to_plotly_json() for theme in ("light", "dark")}
    (static / "figure-templates.js").write_text(f"const figureTemplates = {json.dumps(templates)};\n", encoding="utf-8")
    for page in sorted(app.outdir.rglob("*.html")):
        if found := FROM_A_NETWORK.search(page.read_text(encoding="utf-8")):
            LOG.warning("%s loads from a network: %s", page.relative_to(app.outdir), found[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect."""
    kernels()
    app.connect("doctree-read", local)
    app.connect("html-page-context", scripts)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
