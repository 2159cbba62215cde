"""Fixtures: `db` is a real database, one after the other; a test that takes it runs on each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TypeVar

import pytest

from databases import NAMES, Database, migrated, new_database

T = TypeVar("T")


#: Tests of whole workers in which versions of a database may well differ.
DIFFERING = ("test_acceptance", "test_backlog", "test_facts", "test_outage", "test_random_kills", "test_wakeups")

#: Tests of tools and frameworks around dibs, and of whole scenarios, which take long: on one version of each database. What an older or newer
#: version does differently shows in all others; scripts/matrix runs everything on every version.
ON_ONE_VERSION = (
    "anomaly",
    "conformance/test_doctor.py",
    "conformance/test_why",
    "contrib/django",
    "testing",
    *(
        f"worker/{path.name}"
        for path in sorted((Path(__file__).parent / "worker").glob("test_*.py"))
        if path.stem not in DIFFERING
    ),
)
FURTHER_VERSIONS = ("[postgres14", "[mariadb11")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a second version of the same database says nothing new about."""
    here = Path(__file__).parent
    left_out = [
        item
        for item in items
        if any(version in item.nodeid for version in FURTHER_VERSIONS)
        and item.path.relative_to(here).as_posix().startswith(ON_ONE_VERSION)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Database]]:
    made: dict[str, Database] = {}
    with ExitStack() as stack:

        def get(name: str) -> Database:
            if name not in made:
                generator = migrated(name, tmp_path_factory.mktemp(name))
                made[name] = next(generator)
                stack.callback(lambda: next(generator, None))
            return made[name]

        yield get


@pytest.fixture(params=NAMES)
def db(request: pytest.FixtureRequest, _databases: Callable[[str], Database], tmp_path: Path) -> Database:
    """A migrated database without rows."""
    database = _databases(request.param)
    database.empty()
    return database


@pytest.fixture
def sqlite(_databases: Callable[[str], Database]) -> Database:
    """The same on SQLite alone, for what asks no database for anything of its own."""
    database = _databases("sqlite")
    database.empty()
    return database


@pytest.fixture(params=NAMES)
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    name: str = request.param
    with nullcontext(f"sqlite:///{tmp_path / 'bare.db'}") if name == "sqlite" else new_database(name) as url:
        database = Database(name, url)
        yield database
        database.close()


def wait_for(condition: Callable[[], T], *, within: float = 20.0, every: float = 0.02, what: str = "") -> T:
    """Return what `condition` returns as soon as it is true; fail after `within` seconds."""
    end = time.monotonic() + within
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            pytest.fail(f"waited {within:g} s in vain{f' for {what}' if what else ''}")
        time.sleep(every)
