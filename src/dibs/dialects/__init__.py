"""Which dialect a database URL asks for. The only place where a scheme chooses something."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from dibs.dialects.dialect import Dialect
from dibs.dialects.urls import EXAMPLE, DatabaseUrl, parse

_DIALECTS = {
    "postgresql": "dibs.dialects.postgres:Postgres",
    "mysql": "dibs.dialects.mysql:MySQL",
    "mariadb": "dibs.dialects.mariadb:MariaDB",
    "sqlite": "dibs.dialects.sqlite:SQLite",
}


def dialect_for(url: DatabaseUrl, *, schema: str | None = None, prefix: str = "") -> Dialect:
    """Return the dialect of a database URL, for the schema in which dibs' tables are and what their names begin with."""
    module, _, name = _DIALECTS[url.scheme].partition(":")
    kind: type[Dialect] = getattr(import_module(module), name)
    return kind(schema or kind.default_schema(url), prefix)


def file_url(path: Path) -> str:
    """Return the URL of a queue in a file, which needs no server.

    >>> file_url(Path("/tmp/50%.db"))
    'sqlite:////tmp/50%25.db'
    """
    return f"sqlite:///{quote(str(path))}"


__all__ = ["EXAMPLE", "DatabaseUrl", "Dialect", "dialect_for", "file_url", "parse"]
