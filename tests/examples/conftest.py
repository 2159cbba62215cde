"""A fixture: one of the programs of `examples/`, on a migrated database of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from databases import VARIABLES, new_database
from examples.harness import Example


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Example]:
    """An example on a migrated database of the test's own. The parameter is the database, and the URL's scheme."""
    name, scheme = request.param
    if not os.environ.get(VARIABLES[name]):
        pytest.skip(f"no server in {VARIABLES[name]}")
    with new_database(name) as url:
        example = Example(url, scheme, tmp_path)
        try:
            example.run("-m", "dibs", "migrate")
            yield example
        finally:
            example.end()
