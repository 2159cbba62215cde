"""Looks for the other half of a queue: its jobs here and its workers in another place of the same server, or the reverse.

A place is what `Dibs(url, schema=…, prefix=…)` names: a database, a schema, a prefix. Only what this account may read is
looked into, and a bounded number of places. Nothing is locked or written there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from dibs import ops
from dibs.bindings import connector
from dibs.bindings.binding import OwnConnection
from dibs.connections import Connections
from dibs.dialects.dialect import Dialect
from dibs.errors import DatabaseError, InvalidArgument
from dibs.meanings import is_of_a_driver
from dibs.ops import Op
from dibs.register import alive
from dibs.settings import prefix_of
from dibs.store import Store
from dibs.why import Elsewhere, Half, are_halves

T = TypeVar("T")

#: Places that are looked into in a database, and other databases, each of which takes a connection; and for how long
#: (seconds) all of that may take, roughly.
MOST_PLACES = 50
MOST_DATABASES = 20
LONGEST = 3.0

#: Jobs of a lane that are looked at, lanes, and the newest jobs among which the queue's last one is looked for.
MOST_OF_LANE = 100
MOST_LANES = 5
MOST_NEW = 500


class Asking(Protocol):
    """Runs an op that only reads in a database; returns None where that may not be."""

    def __call__(self, make: Callable[[], Op[T]]) -> T | None: ...


def other_halves(app: Connections, queue: str, here: Half) -> list[Elsewhere]:
    """Return the places where the other half of a queue seems to be, of which this is one half."""
    end = time.monotonic() + LONGEST
    found: list[Elsewhere] = []
    for database, ask in _databases(app, end):
        places = ask(partial(app.dialect.places, database is None)) or []
        for schema, prefix in places[:MOST_PLACES]:
            if time.monotonic() > end:
                break
            try:
                dialect = type(app.dialect)(schema, prefix_of(prefix))
            except InvalidArgument:
                continue  # a table that has its name by chance
            there = ask(partial(_half, dialect, queue, here))
            if there is not None and are_halves(here, there):
                found.append(
                    Elsewhere(
                        database=app.dialect.database_of(schema) if database is None else database,
                        schema=schema,
                        prefix=prefix,
                        waiting=there.waiting,
                        workers=len(there.serving),
                    )
                )
    return found


def _databases(app: Connections, end: float) -> Iterator[tuple[str | None, Asking]]:
    """Yield this database (None), and one after the other those that it takes a connection of its own to look into."""

    def ask_here(make: Callable[[], Op[T]]) -> T | None:
        with suppress(DatabaseError):
            return app.store.run(make, persistent=False)
        return None

    yield None, ask_here
    for name in ask_here(partial(app.dialect.other_databases, limit=MOST_DATABASES)) or []:
        if time.monotonic() > end:
            return
        url = replace(app.url, database=name, query={k: v for k, v in app.url.query.items() if k != "dbname"})
        # Not run by the store, which would insist on tables where ours are.
        store = Store(app.dialect, connector(url, password=app.password), name="dibs why")
        with suppress(DatabaseError), closing(store.open()) as connection:  # this account may not go there, or not so
            yield name, partial(_ask, connection)


def _ask(connection: OwnConnection, make: Callable[[], Op[T]]) -> T | None:
    connection.begin(writes=False)
    try:
        return ops.run(make(), connection)
    except Exception as error:
        if not is_of_a_driver(error) and not isinstance(error, DatabaseError):
            raise
        return None
    finally:
        with suppress(Exception):
            connection.rollback()


def _half(dialect: Dialect, queue: str, here: Half) -> Op[Half | None]:
    """Return what is there of a queue; None as soon as it is plain that it is not the other half of `here`.

    Fails where it may not be read, or there are no tables of dibs' after all.
    """
    serving = tuple(worker for worker in alive((yield from dialect.workers())) if worker.serves(queue) is not False)
    if bool(serving) is bool(here.serving) and (serving or here.waiting):
        return None
    lanes = yield from dialect.lanes([queue])
    if not lanes and not serving:
        return None
    due = []
    for lane in lanes[-MOST_LANES:]:
        due += yield from dialect.due_now(lane, limit=MOST_OF_LANE)
    _, enqueued = yield from dialect.newest_of(queue, limit=MOST_NEW)
    return Half(
        waiting=len(due),
        since=min((job.run_at for job in due), default=None),
        tasks=frozenset(job.task for job in due),
        serving=serving,
        enqueued=enqueued,
    )
