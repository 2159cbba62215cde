"""Statements are written with `:named` values; each driver wants them its own way.

Rendered once per statement and style and kept, so the text a server sees never changes and stays prepared.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Style(Enum):
    """How a driver spells a value in a statement (PEP 249's `paramstyle`, and `$1`)."""

    NAMED = ":name"
    PYFORMAT = "%(name)s"
    FORMAT = "%s"
    QMARK = "?"
    DOLLAR = "$1"


class Rendered(NamedTuple):
    """A statement in a driver's style; `names` is the order of its values, empty where they go by name."""

    text: str
    names: tuple[str, ...]


# Skipped whole: text, quoted names, dollar quotes, comments and `::` casts. Only then a `:name`. A quote
# within text is doubled, never escaped with a backslash, which not every database takes for an escape.
_TOKEN = re.compile(
    r"""
      (?P<skip> '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
              | --[^\n]* | /\*.*?\*/ | :: )
    | :(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<percent>%)
    """,
    re.VERBOSE | re.DOTALL,
)


#: A statement with more characters than this has come of a number of rows, and only the last few are kept.
LONG = 10_000


def render(sql: str, style: Style) -> Rendered:
    """Return `sql` with its `:named` values spelt in `style`.

    >>> render("SELECT :a::text, ':b', :a", Style.DOLLAR)
    Rendered(text="SELECT $1::text, ':b', $1", names=('a',))
    >>> render("SELECT :a LIKE '5%'", Style.PYFORMAT)
    Rendered(text="SELECT %(a)s LIKE '5%%'", names=())
    """
    return _render_long(sql, style) if len(sql) > LONG else _render_short(sql, style)


def _render(sql: str, style: Style) -> Rendered:
    names: list[str] = []
    doubled = style in (Style.PYFORMAT, Style.FORMAT)

    def spell(match: re.Match[str]) -> str:
        if (skipped := match["skip"]) is not None:
            return skipped.replace("%", "%%") if doubled else skipped
        if match["percent"]:
            return "%%" if doubled else "%"
        name = match["name"]
        if style is Style.NAMED:
            return f":{name}"
        if style is Style.PYFORMAT:
            return f"%({name})s"
        if style is Style.DOLLAR:
            if name not in names:
                names.append(name)
            return f"${names.index(name) + 1}"
        names.append(name)
        return "%s" if style is Style.FORMAT else "?"

    return Rendered(_TOKEN.sub(spell, sql), tuple(names))


_render_short = lru_cache(maxsize=1024)(_render)
_render_long = lru_cache(maxsize=4)(_render)
