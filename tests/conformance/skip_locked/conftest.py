"""A lab on each server that locks rows; a module about one kind says so: `pytestmark = on("postgres")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from conformance.skip_locked.lab import LABS, Lab, lab_on
from databases import Database


@pytest.fixture(scope="session")
def _labs(_databases: Callable[[str], Database]) -> Iterator[Callable[[str], Lab]]:
    made: dict[str, Lab] = {}
    with ExitStack() as stack:

        def get(name: str) -> Lab:
            if name not in made:
                made[name] = stack.enter_context(lab_on(_databases(name)))
            return made[name]

        yield get


@pytest.fixture(params=LABS)
def lab(request: pytest.FixtureRequest, _labs: Callable[[str], Lab]) -> Iterator[Lab]:
    """Ten ready jobs on a server that locks rows; what a test leaves open is rolled back."""
    lab = _labs(request.param)
    lab.make(10)
    yield lab
    lab.end_sessions()
