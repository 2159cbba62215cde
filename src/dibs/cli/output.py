"""What results look like: tables and fields for people, JSON for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from dibs.logs import escaped
from dibs.wording import moment


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, in UTF-8 whatever the terminal's encoding."""
    click.echo(msgspec.json.encode(value))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, err: bool = False) -> None:
    """Print rows under a header; numbers are on the right of their columns. `err`: it is not the result."""
    rows = list(rows)
    cells = [list(header), *[[cell(value) for value in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    right = [False] * len(header)
    for row in rows:
        right = [was or isinstance(value, int) for was, value in zip(right, row, strict=True)]
    for row in cells:
        columns = zip(row, widths, right, strict=True)
        line = "  ".join(text.rjust(width) if numbers else text.ljust(width) for text, width, numbers in columns)
        click.echo(line.rstrip(), err=err)


def cell(value: object) -> str:
    """Return a value for a person to read, on one line and without what would steer a terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return moment(value)
    return printable(str(value)).replace("\n", "\\n")


def printable(text: str) -> str:
    """Return a text with control characters, other than the end of a line, written as escapes.

    >>> printable("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    return escaped(text, keep="\n")
