"""Render mathematics as MathML, with docutils' own converter: pages need neither a script nor a network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

TAG = re.compile(r"\\tag\{([^}]*)\}")


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula inside a line."""
    translator.body.append(f'<span class="math">{tex2mathml(node.astext())}</span>')
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, with the number that its tag gives."""
    text = node.astext()
    number = TAG.search(text)
    label = f'<span class="eqno">({number[1]})</span>' if number else ""
    translator.body.append(f'<div class="math">{tex2mathml(TAG.sub("", text).strip(), as_block=True)}{label}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` selects it."""
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True}
