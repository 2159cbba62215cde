"""Fixtures of the conformance suite: a promise is stated once and kept on every database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.hands import Queue
from databases import Database


@pytest.fixture(scope="session")
def _queues() -> Iterator[dict[str, Queue]]:
    made: dict[str, Queue] = {}
    yield made
    for queue in made.values():
        queue.close()


@pytest.fixture
def queue(db: Database, _queues: dict[str, Queue]) -> Queue:
    """An empty queue; its connections are kept from test to test."""
    if db.name not in _queues:
        _queues[db.name] = Queue(db)
    return _queues[db.name]


@pytest.fixture
def locking(queue: Queue) -> Queue:
    """An empty queue in a database that locks rows; with one writer at a time there are none to lock."""
    if not queue.db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    return queue
