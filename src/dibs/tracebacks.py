"""What a stored error text says: which exception ended the run, and what it said. Pure."""

from __future__ import annotations

import re

_HEADER = "Traceback (most recent call last):"
_CUT = re.compile(r"… \d+ characters …")
_GROUP = re.compile(
    r"\s*\+ Exception Group Traceback .*?^ *\| ((?:\w+\.)*\w*Group): ([^\n]*)", re.DOTALL | re.MULTILINE
)
_NAME = re.compile(r"\w+(\.\w+)*")


def raised_in(text: str) -> list[tuple[str, str]]:
    """Return the exceptions of a traceback, each with the first line of what it said; the last one ended the run.

    >>> raised_in("Traceback (most recent call last):\\n  File …\\nshop.errors.Declined: card\\nof nobody")
    [('shop.errors.Declined', 'card')]
    """
    return [found for block in text.split(_HEADER)[1:] if (found := _raised(block))]


def kind_of(text: str) -> tuple[str, str]:
    """Return by what failures like this one are told from others, a text that stands in it, and what it said.

    The first is the name of the exception. Where there was none, it is what the worker wrote, without its numbers.

    >>> kind_of("timed out after 5 s (attempt 3 of 12)")
    ('timed out after 5 s', '')
    """
    if group := _GROUP.match(text):
        return group[1], group[2]
    if raised := raised_in(text):
        return raised[-1]
    line = (text.splitlines() or [""])[0]
    found = re.match(r"(\w+(?:\.\w+)+|[A-Z]\w+): (.*)", line)  # an exception without its traceback
    return (found[1], found[2]) if found else (line.partition(" (")[0], "")


def _raised(block: str) -> tuple[str, str] | None:
    """Return what the line after the frames says, which are indented. It may stand before or behind what was cut out."""
    for part in _CUT.split(block):
        indented = False
        for line in part.splitlines()[1:]:
            if not line or line[0].isspace():
                indented = indented or bool(line)
            elif indented:
                name, _, said = line.partition(":")
                return (name.strip(), said.strip()) if _NAME.fullmatch(name.strip()) else None
            else:
                break  # a piece of what the exception said
    return None
