"""What pages get from the code: the directive `reference`. Links to Markdown outside of docs/ become text."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata
from typing_extensions import override

from testbed.reference import PAGES

_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^.)#][^)#]*\.md)[^)]*\)")


class Reference(SphinxDirective):
    """One page of the reference, by its name."""

    required_arguments = 1

    @override
    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(PAGES[self.arguments[0]](), allow_section_headings=True)


def outside(_: Sphinx, page: str, source: list[str]) -> None:
    """Name the files beside docs/ that a page refers to."""
    up = page.count("/") + 1
    source[0] = _LINK.sub(lambda link: f"{link[1]} (`{link[2]}`)" if link[0].count("../") == up else link[0], source[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    """As Sphinx calls it."""
    app.add_directive("reference", Reference)
    app.connect("source-read", outside)
    return {"parallel_read_safe": True}
