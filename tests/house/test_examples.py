"""The pages show the programs of `examples/` as they are."""

from __future__ import annotations

import re

import pytest

from house.sources import ROOT

PIECES = [
    pytest.param(file, piece, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, (file, piece) in enumerate(
        re.findall(
            r"^```python\n# (examples/\S+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        )
    )
]


@pytest.mark.parametrize(("file", "piece"), PIECES)
def test_pieces_of_examples_are_pieces_of_them(file: str, piece: str) -> None:
    """A snippet that names a program is in that program, word for word."""
    assert piece in (ROOT / file).read_text(encoding="utf-8")


def test_there_are_pieces() -> None:
    """And they are found."""
    assert len(PIECES) >= 8
