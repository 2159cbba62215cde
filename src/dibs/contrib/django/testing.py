"""For tests of a project. A TestCase needs none of this: what it enqueues is rolled back with it."""

from __future__ import annotations

from django.db import connections

from dibs import ops
from dibs.bindings import bind, is_async
from dibs.contrib.django import app
from dibs.ops import Execute

#: What is emptied; the rows of the other tables belong to the schema.
_TABLES = ("jobs", "keys", "loose_keys", "duplicates", "queues")


def forget_jobs() -> None:
    """Delete all jobs, keys and pauses: for a TransactionTestCase, whose flush leaves dibs' tables alone."""
    binding = bind(connections[app.alias])
    assert not is_async(binding)
    for table in _TABLES:
        ops.run(_delete(app.dialect.qualify(f"DELETE FROM dibs_{table}")), binding)


def _delete(statement: str) -> ops.Op[None]:
    yield Execute(statement, {})
