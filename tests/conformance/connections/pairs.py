"""Each kind of connection with each database that it connects to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.connections import django, mysql, postgres, sqlalchemy, sqlite
from conformance.connections.kind import Kind
from databases import NAMES, Database

KINDS = [*sqlite.KINDS, *postgres.KINDS, *mysql.KINDS, *sqlalchemy.KINDS, *django.KINDS]


def pairs(which: Callable[[Kind], object] = lambda kind: True) -> list[Any]:
    """Return a parameter set (database, kind) for each pair; a kind whose driver is not installed is skipped."""
    return [
        pytest.param(
            name,
            kind,
            id=f"{name}-{kind.name}",
            marks=[pytest.mark.skip(reason=f"{kind.missing} is not installed")] if kind.missing else [],
        )
        for name in NAMES
        for kind in KINDS
        if kind.database == Database(name, "").kind and which(kind)
    ]


def on_each(which: Callable[[Kind], object] = lambda kind: True) -> pytest.MarkDecorator:
    """Run a test that takes `db` and `kind` for each pair."""
    return pytest.mark.parametrize(("db", "kind"), pairs(which), indirect=["db"])
