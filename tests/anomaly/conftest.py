"""Fixtures of these tests: `site` is a database with a program whose workers are real processes, `queue` one with its ops."""

import pytest

from conformance.conftest import _queues, queue
from worker.conftest import site

__all__ = ["_queues", "queue", "site"]

#: Scenarios that are also short on MariaDB: it locks in its own way. The others run there at full length alone, since most
#: of its statements are those of MySQL.
SHORT_ON_MARIADB = ("test_locks.py", "test_zombies.py")


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "anomaly" and "[mariadb" in item.nodeid and item.path.name not in SHORT_ON_MARIADB:
            item.add_marker(pytest.mark.slow)
