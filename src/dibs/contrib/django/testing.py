"""For tests of a project. A TestCase needs none of this: what it enqueues is rolled back with it."""

from __future__ import annotations

from django.db import connections

from dibs import ops
from dibs.bindings import bind, is_async
from dibs.contrib.django import app


def forget_jobs() -> None:
    """Delete all jobs, keys and pauses: for a TransactionTestCase, whose flush leaves dibs' tables alone."""
    binding = bind(connections[app.alias])
    assert not is_async(binding)
    ops.run(app.dialect.forget(), binding)
