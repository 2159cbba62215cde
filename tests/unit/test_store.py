"""dibs' own connections: one op is one transaction, and the connection is whole again whatever happens in it.

On real files; what servers add (lost sessions, deadlocks) is in the conformance suite.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from dibs import Dibs, store
from dibs.bindings.binding import OwnConnection
from dibs.dialects import Dialect
from dibs.errors import DatabaseError, DatabaseUnavailable, SchemaError
from dibs.ops import Op, Request, execute, fetch
from dibs.store import LOCKED_TRIES, Store


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dibs]:
    app = Dibs(f"sqlite:///{tmp_path / 'dibs.db'}?busy_timeout=5")
    app.migrate()
    app.store.run(lambda: execute("CREATE TABLE numbers (n INTEGER)"))
    yield app
    app.close()


def write(n: int) -> Op[int]:
    """Write a number, in a transaction (it is not alone)."""
    return execute("INSERT INTO numbers (n) VALUES (:n)", n=n)


def numbers(app: Dibs) -> list[int]:
    return [row[0] for row in app.store.run(lambda: fetch("SELECT n FROM numbers ORDER BY n", alone=True))]


def test_an_op_is_a_transaction(app: Dibs) -> None:
    """All of it or nothing."""

    def both(error: Exception | None) -> Op[str]:
        yield from write(1)
        yield from write(2)
        if error:
            raise error
        return "both"

    with pytest.raises(ValueError, match="in between"):
        app.store.run(lambda: both(ValueError("in between")))
    assert numbers(app) == []
    assert app.store.run(lambda: both(None)) == "both"
    assert numbers(app) == [1, 2]


def test_connections_are_kept(app: Dibs) -> None:
    """One is enough for one thread; after an error it is used again."""
    made = app.store.connections
    for n in range(5):
        app.store.run(lambda: write(n))
    with pytest.raises(DatabaseError):
        app.store.run(lambda: fetch("SELECT nonsense(1)"))
    with pytest.raises(ZeroDivisionError):
        app.store.run(lambda: write(1 // 0))
    app.store.run(lambda: write(5))
    assert app.store.connections == made


class Recording:
    """A connection that says what is asked of it, in the order in which it is asked."""

    def __init__(self, real: OwnConnection, said: list[str]) -> None:
        self._real = real
        self._said = said

    def __getattr__(self, name: str) -> Any:
        if name in ("begin", "commit", "rollback", "close"):
            self._said.append(name)
        return getattr(self._real, name)

    def answer(self, request: Request) -> Any:
        self._said.append(request.sql.split()[0])
        return self._real.answer(request)


def recording(app: Dibs) -> tuple[Store, list[str]]:
    said: list[str] = []
    made = Store(app.dialect, lambda name: Recording(app.store.open(), said))  # type: ignore[arg-type,return-value]
    made.run(app.dialect.paused)
    said.clear()
    return made, said


def test_one_statement_alone_needs_no_transaction(app: Dibs) -> None:
    """Two round trips are saved; more than one writing statement has its BEGIN and its COMMIT."""
    made, said = recording(app)
    made.run(lambda: execute("INSERT INTO numbers (n) VALUES (1)", alone=True))
    assert said == ["INSERT"]
    said.clear()
    made.run(lambda: write(2))
    assert said == ["begin", "INSERT", "commit"]
    said.clear()
    with pytest.raises(DatabaseError):
        made.run(lambda: execute("INSERT INTO nowhere VALUES (1)"))
    assert said == ["begin", "INSERT", "rollback"]
    made.close()


def test_an_op_that_asks_nothing(app: Dibs) -> None:
    """Begins nothing."""
    made, said = recording(app)

    def nothing() -> Op[int]:
        yield from ()
        return 7

    assert made.run(nothing) == 7
    assert said == []
    made.close()


def test_no_more_connections_than_its_size(app: Dibs) -> None:
    """Who comes when all are in use waits for one."""
    made = app.new_store(size=2)
    inside, most = [0], [0]
    lock, leave = threading.Lock(), threading.Event()

    def op() -> Op[None]:
        yield from fetch("SELECT 1", alone=True)
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        assert leave.wait(10)
        with lock:
            inside[0] -= 1

    with ThreadPoolExecutor(5) as threads:
        runs = [threads.submit(made.run, op) for _ in range(5)]
        wait_for(lambda: inside[0] == 2, what="two ops to be inside")
        leave.set()
        for run in runs:
            run.result(timeout=10)
    assert (most[0], made.connections) == (2, 2)
    made.close()


def test_a_lock_is_waited_for_a_few_times(app: Dibs) -> None:
    """Then it is said that it was not to be had; and the op is made anew for each try."""
    tries: list[int] = []

    def op() -> Op[int]:
        tries.append(len(tries))
        return write(1)

    holder = app.store.open()
    holder.begin()
    with pytest.raises(DatabaseUnavailable, match="lock"):
        app.store.run(op)
    assert len(tries) == LOCKED_TRIES
    holder.rollback()
    app.store.run(op)
    assert numbers(app) == [1]
    holder.close()


def test_an_interrupt_lets_go(app: Dibs) -> None:
    """Ctrl-C in the middle: the traceback may be kept for ever, the transaction is not."""

    def op() -> Op[None]:
        yield from write(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        app.store.run(op)
    app.store.run(lambda: write(2))
    assert numbers(app) == [2]
    assert caught.value is not None


def test_a_driver_error_is_dibs_own(app: Dibs) -> None:
    """With the driver's as its cause; a missing table names the command."""
    with pytest.raises(DatabaseError, match="nonsense") as caught:
        app.store.run(lambda: fetch("SELECT nonsense(1)"))
    assert type(caught.value.__cause__).__module__ == "sqlite3"
    with pytest.raises(SchemaError, match="dibs migrate"):
        app.store.run(lambda: fetch("SELECT * FROM dibs_nowhere"))


def test_a_fork_has_its_own_connections(app: Dibs) -> None:
    """The child opens its own. The parent closes what a child must not inherit, before, and opens it anew."""
    app.store.run(lambda: write(1))
    ours = [connection for connection, _ in app.store._idle]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            app.store.run(lambda: write(2))
            theirs = [connection for connection, _ in app.store._idle]
            status = 0 if theirs and not set(map(id, ours)) & set(map(id, theirs)) else 2
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    made = app.store.connections
    app.store.run(lambda: write(3))
    assert numbers(app) == [1, 2, 3]
    assert app.store.connections == made + 1


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_how_long_the_database_has_been_reachable(app: Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows with use, begins anew after a gap in which nobody asked, and is over when a connection is lost."""
    clock = Clock()
    monkeypatch.setattr(store, "time", clock)
    made = app.new_store(gap=10.0)

    def use() -> float:
        made.run(app.dialect.paused)
        return made.reachable()

    assert made.reachable() == 0.0
    assert use() == 0.0
    clock.now += 9
    assert use() == 9.0
    clock.now += 9
    assert use() == 18.0
    clock.now += 10.5
    assert use() == 0.0, "nobody knows what happened in the gap"
    clock.now += 5
    assert use() == 5.0
    for connection, _ in made._idle:
        connection.close()
    clock.now += 5
    assert use() < 5.0, "the connection was lost"
    made.close()


def test_a_server_that_is_not_there(dialect: Dialect) -> None:
    """Raised at once: whoever enqueues should know, and a worker waits by itself."""
    made = Dibs("postgresql://127.0.0.1:9/x?connect_timeout=1").store
    with pytest.raises(DatabaseUnavailable, match=r"cannot connect to postgresql://127\.0\.0\.1:9/x"):
        made.run(dialect.paused)
    assert made.reachable() == 0.0


@pytest.fixture
def dialect() -> Dialect:
    pytest.importorskip("psycopg")
    return Dibs("postgresql://nowhere/x").dialect
