"""Whether the tables are still what the migrations made: columns, their types, and indexes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from dibs.dialects.doctor.examining import Catalogue, Examining, Index
from dibs.findings import Finding, fail, ok
from dibs.migrations import statements

_TYPE = r"double precision|\w+(?:\(\d+\))?"
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(.+?) \((.*?)\n\)", re.DOTALL)
_COLUMN = re.compile(rf"^\s*(\w+)\s+({_TYPE})(.*?),?\s*$", re.MULTILINE)
_ADDED = re.compile(rf"ADD COLUMN (?:IF NOT EXISTS )?(\w+) ({_TYPE})")
_INDEX = re.compile(r"CREATE INDEX (\w+) ON (.+?) \(([\w, ]+)\)( WHERE [^;]*)?")
_INLINE = re.compile(r"^\s*INDEX (\w+) \(([\w, ]+)\)", re.MULTILINE)

#: Words that a line of a table's description begins with and that are no column.
_NO_COLUMN = {"check", "primary", "index", "unique", "constraint"}


class Made(NamedTuple):
    """What the migrations made. `tables`: how statements write each; `create`: the statement that makes an index."""

    catalogue: Catalogue
    tables: dict[str, str]
    create: dict[str, str]


def made(texts: Iterable[str]) -> Made:
    """Return what these migrations make, read off their SQL: so there is no second list to keep."""
    columns: dict[str, dict[str, str]] = {}
    tables: dict[str, str] = {}
    indexes: dict[str, Index] = {}
    create: dict[str, str] = {}
    for statement in (re.sub(r"--.*", "", each) for text in texts for each in statements(text)):
        for table, body in _TABLE.findall(statement):
            tables[_last(table)] = table
            columns[_last(table)] = {
                name: kind.lower() for name, kind, _ in _COLUMN.findall(body) if name.lower() not in _NO_COLUMN
            }
            for name, of in _INLINE.findall(body):
                indexes[name] = Index(tuple(of.split(", ")))
                create[name] = f"CREATE INDEX {name} ON {table} ({of})"
        if altered := re.search(r"ALTER TABLE (.+?)\s+ADD COLUMN", statement):
            columns[_last(altered[1])] |= {name: kind.lower() for name, kind in _ADDED.findall(statement)}
        for name, table, of, where in _INDEX.findall(statement):
            indexes[name] = Index(tuple(of.split(", ")), where=bool(where))
            create[name] = f"CREATE INDEX {name} ON {table} ({of}){where}"
    return Made(Catalogue(columns, indexes), tables, create)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def drift(wanted: Made, there: Catalogue, examining: Examining) -> Finding:
    """Say how the tables differ from what was made. What somebody added is his: an index, a column."""
    found: list[str] = []
    fixes: list[str] = []
    for table, columns in wanted.catalogue.columns.items():
        if table not in there.columns:
            found.append(f"table {table} is missing")
            fixes.append("run the statement that makes it: dibs migrate --sql prints it")
            continue
        for column, kind in columns.items():
            is_now = there.columns[table].get(column)
            if is_now is None:
                found.append(f"column {table}.{column} is missing")
                fixes.append(f"ALTER TABLE {wanted.tables[table]} ADD COLUMN {column} {kind}")
            elif is_now != kind:
                found.append(f"column {table}.{column} is {is_now}, not {kind}")
                fixes.append(
                    f"give {wanted.tables[table]}.{column} the type {kind} again, as dibs migrate --sql has it"
                )
    for name, index in wanted.catalogue.indexes.items():
        is_there = there.indexes.get(name)
        if is_there is None:
            found.append(f"index {name} is missing")
            fixes.append(wanted.create[name])
        elif is_there != index:
            found.append(f"index {name} {_difference(index, is_there)}")
            fixes.append(examining.rebuild(name, wanted.create[name]))
    if found:
        return fail(
            "; ".join(found),
            "statements fail where a column is gone, and read the whole table where an index is",
            "; ".join(dict.fromkeys(fixes)),
        )
    return ok(
        f"{len(wanted.catalogue.columns)} tables and {len(wanted.catalogue.indexes)} indexes are as they were made"
    )


def _difference(wanted: Index, there: Index) -> str:
    if not there.valid:
        return "is invalid or hidden: no statement goes by it"
    if there.columns != wanted.columns:
        return f"is on ({', '.join(there.columns)}), not ({', '.join(wanted.columns)})"
    return "has a condition of its own" if there.where else "has lost its condition: it is on every row"
