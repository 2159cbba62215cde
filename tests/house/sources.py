"""What the rules of the house look at: the files of this project, and the statements of its dialects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dibs.dialects import Dialect, parse
from dibs.dialects import dialect_for as dialect_for_url

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dibs"

#: One database URL for each dialect; nothing is connected to.
URLS = {
    "postgres": "postgresql://nowhere/x",
    "mysql": "mysql://nowhere/x",
    "mariadb": "mariadb://nowhere/x",
    "sqlite": "sqlite:///nowhere.db",
}


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below these folders of the project."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file's path as test ids and lists of exceptions have it."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Yield the statements of a dialect, as they are sent, with the names of their constants."""
    for name in dir(dialect):
        text = getattr(dialect, name)
        if name.isupper() and not name.startswith("_") and isinstance(text, str) and " " in text:
            yield name, " ".join(text.split())


def dialect(name: str) -> Dialect:
    return dialect_for_url(parse(URLS[name]))
