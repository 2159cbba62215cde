"""What the drivers that follow PEP 249 share: a statement goes into a cursor, and its answer is read off it.

The cursor must be one that gives plain tuples; who opens it sees to that.
"""

from __future__ import annotations

import re
from typing import Any

from dibs.ops import Fetch, Insert, Request
from dibs.params import Style, render

#: Python's sqlite3 counts rows only for what starts with INSERT, UPDATE, DELETE or REPLACE. For an UPDATE after
#: a WITH it says -1; then this is asked.
CHANGES = "SELECT changes()"

_BY_NAME = (Style.NAMED, Style.PYFORMAT)


def spelt(request: Request, style: Style) -> tuple[str, Any]:
    """Return a request's text and values as a driver of this style takes them."""
    text, names = render(request.sql, style)
    if style in _BY_NAME:
        return text, request.values
    values = tuple([request.values[name] for name in names])
    return _spread(text, values) if style is Style.FORMAT else (text, values)


def _spread(text: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Give each item of a list a place of its own: not every driver of this style writes a list as (1, 2, 3)."""
    if not any(isinstance(value, tuple) for value in values):
        return text, values
    left = iter(values)
    flat: list[Any] = []

    def place(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%%"
        value = next(left)
        flat.extend(value if isinstance(value, tuple) else (value,))
        return f"({', '.join(['%s'] * len(value))})" if isinstance(value, tuple) else "%s"

    return re.sub("%%|%s", place, text), tuple(flat)


def ask(cursor: Any, request: Request, style: Style) -> Any:
    """Execute a request on a blocking cursor and return its answer."""
    cursor.execute(*spelt(request, style))
    if isinstance(request, Fetch):
        return list(cursor.fetchall())
    return cursor.lastrowid if isinstance(request, Insert) else cursor.rowcount


async def aask(cursor: Any, request: Request, style: Style) -> Any:
    """Execute a request on an async cursor and return its answer."""
    await cursor.execute(*spelt(request, style))
    if isinstance(request, Fetch):
        return list(await cursor.fetchall())
    return cursor.lastrowid if isinstance(request, Insert) else cursor.rowcount
