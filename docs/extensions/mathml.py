"""Render mathematics as MathML, with docutils' own converter: pages need neither a script nor a network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOG = logging.getLogger(__name__)
POINT = re.compile(r"<mo>\.</mo>\s*<mn>(\d+)</mn>")  # of a number without a leading zero
TAG = re.compile(r"\\tag\{([^}]*)\}")


def converted(node: nodes.math | nodes.math_block, text: str, *, as_block: bool) -> str:
    """MathML of some LaTeX; what cannot be converted is a warning that names the place."""
    try:
        return POINT.sub(r"<mn>.\1</mn>", tex2mathml(text, as_block=as_block))
    except MathError as error:
        LOG.warning("%s", error, location=node)
        return ""


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(f'<span class="math">{converted(node, node.astext(), as_block=False)}</span>')
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, with the number that its tag gives."""
    text = node.astext()
    number = TAG.search(text)
    label = f'<span class="eqno">({number[1]})</span>' if number else ""
    formula = converted(node, TAG.sub("", text).strip(), as_block=True)
    translator.body.append(f'<div class="math">{formula}{label}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` selects it."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True}
