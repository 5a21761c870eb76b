"""Links that leave the documentation: arXiv numbers become links, every address is checked for its form and listed.

Builds have no network, so no address is opened. ``{external-links}`` writes the list: what is cited, and where.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

LOG = logging.getLogger(__name__)
ARXIV = re.compile(r"\barXiv (\d{4}\.\d{4,5})\b")
HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
NO_LINKS_IN = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.raw, nodes.math)


class ExternalLinks(nodes.General, nodes.Element):
    """Where the list will stand once every page has been read."""


class ListLinks(SphinxDirective):
    """``{external-links}``."""

    def run(self) -> list[nodes.Node]:
        """Leave room for the list."""
        return [ExternalLinks()]


def links_of(env: BuildEnvironment) -> dict[str, dict[str, str]]:
    """Every address with the text and the pages that lead to it."""
    if not hasattr(env, "external_links"):
        env.external_links = {}
    found: dict[str, dict[str, str]] = env.external_links
    return found


def pieces(text: str) -> Iterator[nodes.Node]:
    """A text with each arXiv number as a link."""
    end = 0
    for number in ARXIV.finditer(text):
        yield nodes.Text(text[end : number.start()])
        yield nodes.reference("", number[0], refuri=f"https://arxiv.org/abs/{number[1]}")
        end = number.end()
    yield nodes.Text(text[end:])


def fault(address: str) -> str:
    """What is wrong with the form of an address; empty if nothing is."""
    try:
        parts = urlsplit(address)
    except ValueError as error:
        return str(error)
    if parts.scheme != "https":
        return "is not https"
    if not HOST.fullmatch(parts.netloc):
        return "has no host"
    return "holds a blank or ends in punctuation" if re.search(r"\s|[.,;:]$", address) else ""


def read(app: Sphinx, doctree: nodes.document) -> None:
    """Make links, check their form, and keep them."""
    for text in list(doctree.findall(nodes.Text)):
        ancestor = text.parent
        while ancestor is not None and not isinstance(ancestor, NO_LINKS_IN):
            ancestor = ancestor.parent
        if ancestor is None and ARXIV.search(text):
            text.parent.replace(text, list(pieces(str(text))))
    page = app.env.docname
    for link in doctree.findall(nodes.reference):
        address = link.get("refuri", "")
        if "://" not in address:
            continue
        if wrong := fault(address):
            LOG.warning("the link %s %s", address, wrong, location=link)
        links_of(app.env).setdefault(address, {}).setdefault(page, link.astext())


def purge(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Forget a page that is about to be read again."""
    for pages in links_of(env).values():
        pages.pop(page, None)


def merge(app: Sphinx, env: BuildEnvironment, pages: set[str], other: BuildEnvironment) -> None:
    """Take over what another process found on its pages."""
    for address, found in links_of(other).items():
        links_of(env).setdefault(address, {}).update({page: text for page, text in found.items() if page in pages})


def write(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Write the list: one line per address, in the order of its text."""
    for place in list(doctree.findall(ExternalLinks)):
        lines = nodes.bullet_list()
        cited = {address: pages for address, pages in links_of(app.env).items() if pages}
        for address, pages in sorted(cited.items(), key=lambda item: item[0].partition("://")[2]):
            shown = nodes.reference("", address.partition("://")[2], refuri=address)
            line = nodes.paragraph("", "", shown, nodes.Text(": "))
            for number, name in enumerate(sorted(pages)):
                title = nodes.Text(app.env.titles[name].astext())
                line += [nodes.Text(", " if number else ""), make_refnode(app.builder, page, name, None, title)]
            lines += nodes.list_item("", line)
        place.replace_self(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and connect."""
    app.add_directive("external-links", ListLinks)
    app.add_node(ExternalLinks)
    app.connect("doctree-read", read)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
