"""Only dialects/, bindings/ and migrations/ know which database it is: elsewhere one asks what it can do."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

from house.sources import PACKAGE, name_of, python_files

ROOMS = {PACKAGE / room for room in ("dialects", "bindings", "migrations")}

DATABASES = {"postgres", "postgresql", "pg", "mysql", "mariadb", "sqlite", "innodb"}
DRIVERS = {
    "psycopg",
    "psycopg2",
    "asyncpg",
    "pymysql",
    "mysqlclient",
    "mysqldb",
    "aiomysql",
    "asyncmy",
    "sqlite3",
    "aiosqlite",
}


def words_in(path: Path) -> set[str]:
    """Return the words of a file: of its names, its strings and its comments, in lower case."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    spoken = " ".join(
        re.sub(r"([a-z])([A-Z])", r"\1 \2", token.string)
        for token in tokenize.generate_tokens(source.readline)
        if token.type not in (tokenize.NUMBER, tokenize.OP)
    )
    return set(re.findall(r"[a-z0-9]+", spoken.lower()))


def test_only_their_rooms_name_databases() -> None:
    """No code, string or comment outside of the rooms names a database or a driver."""
    named = {
        name_of(path): words
        for path in python_files("src")
        if not ROOMS & set(path.parents) and (words := words_in(path) & (DATABASES | DRIVERS))
    }
    assert named == {}


def test_the_rule_sees_what_it_should() -> None:
    """In the rooms they are named; if they were not found there, the rule would look at nothing."""
    assert "postgresql" in words_in(PACKAGE / "dialects" / "postgres.py")
    assert "pymysql" in words_in(PACKAGE / "bindings" / "own_pymysql.py")
