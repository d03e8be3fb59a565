"""A hook of mkdocs: LaTeX between dollar signs becomes MathML, which browsers show by themselves.

`$...$` is part of a line, `$$...$$` stands alone. Code, in blocks or in lines, is left as it is.
"""

import re

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig

DISPLAYED = r"\$\$(.+?)\$\$"
# A dollar sign beside a space is money, not a formula.
IN_LINE = r"(?<!\\)\$(?=[^\s$])([^$]*?[^\s$\\])\$(?!\d)"
# Code in lines is recognised before this, escapes like \_ and emphasis after.
PRIORITY = 185


class Formula(InlineProcessor):
    """One kind of formula."""

    def __init__(self, pattern: str, display: str, md: Markdown) -> None:
        super().__init__(pattern, md)
        self.display = display

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:
        mathml = convert(m[1].strip(), display=self.display)
        return self.md.htmlStash.store(mathml), m.start(0), m.end(0)


class Formulas(Extension):
    """Formulas in Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(Formula(DISPLAYED, "block", md), "displayed", PRIORITY + 1)
        md.inlinePatterns.register(Formula(IN_LINE, "inline", md), "in-line", PRIORITY)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """What mkdocs calls when it has read its settings."""
    config.markdown_extensions.append(Formulas())
    return config
