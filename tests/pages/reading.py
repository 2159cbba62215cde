"""The pages of the documentation, and the blocks of code on them, as the tests read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sybil import Document
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: Code that a page takes for granted (its reader's engine, models, clients), and what must hold after its last
#: block: a module each, named as the page is, run in the page's own namespace.
COMPANIONS = Path(__file__).parent / "companions"

_fences = FencedCodeBlockLexer(language=r"\S*")


class Block(NamedTuple):
    """A block of code: its language, its text, and the line of the page on which its fence is."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    for region in _fences(Document(text, str(page))):
        lexemes = region.lexemes or {}
        yield Block(str(lexemes["language"]), str(lexemes["source"]), text.count("\n", 0, region.start) + 1)


def companion(page: Path) -> Path:
    """Return where the companion of a page is, if it has one."""
    return COMPANIONS / f"{page.stem.lower().replace('-', '_')}.py"
