"""Fixtures of the worker's tests: `site` is a database with a program whose workers are real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import Database
from worker.harness import Site
from worker.program import Program


@pytest.fixture
def site(db: Database, tmp_path: Path) -> Iterator[Site[Program]]:
    """An empty database and the program; no worker has been started."""
    with Site(db, tmp_path, Program) as site:
        yield site
