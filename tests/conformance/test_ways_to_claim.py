"""The ways to claim that `dibs bench strategies` compares: they do what is said of them, by the same index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from databases import Database
from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.dialects.bench import Measuring, measuring
from dibs.dialects.bench.measuring import Strategy
from dibs.ops import Fetch
from dibs.scratch import Place, scratch
from dibs.troubles import Trouble

ROWS = 5_000


class Ways:
    """A table of ready rows, and connections that claim from it."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self._app = place.app()
        self._stack = stack
        self.measured: Measuring = measuring(self._app.dialect)
        self.connection = self.connect()
        ops.run(self.measured.make_claims(), self.connection)
        ops.run(self.measured.fill_claims(ROWS), self.connection)
        stack.callback(self._app.close)

    def connect(self) -> OwnConnection:
        connection = self._app.store.open()
        self._stack.callback(connection.close)
        return connection

    def way(self, name: str) -> Strategy:
        return next(each for each in self.measured.strategies if each.name == name)

    def claim(self, name: str) -> list[int]:
        """Claim over a connection of its own, and keep the transaction open."""
        connection, way = self.connect(), self.way(name)
        seen = ops.run(self.measured.seen_by(way), connection)
        connection.begin()
        return ops.run(self.measured.taken_by(way, seen), connection)


@pytest.fixture
def ways(db: Database) -> Iterator[Ways]:
    with scratch(db.app(), lambda said: None) as place, ExitStack() as stack:
        yield Ways(place, stack)


def test_all_go_by_the_same_index(ways: Ways, db: Database) -> None:
    """No way sorts, and none goes over rows that are done: else the comparison would be of plans."""
    measured = ways.measured
    names = {"LOOK", "BLOCK", "SKIP", "SKIP_BATCH", "NOWAIT", "ADVISE", "LOOK_BATCH"}
    texts = {name: getattr(measured, name) for name in names if hasattr(measured, name)}
    assert len(texts) == (6 if db.locks_rows else 2)
    explain = "EXPLAIN QUERY PLAN " if not db.locks_rows else "EXPLAIN "
    for name, text in texts.items():
        values = {"table": "t"} if name == "ADVISE" else {}
        plan = " ".join(str(row).lower() for row in ways.connection.answer(Fetch(explain + text, values)))
        index = "_place_idx" if db.kind == "postgres" else "claims_ready"
        assert index in plan, (name, plan)
        assert not [word for word in ("sort", "temp b-tree", "seq scan", "'all'") if word in plan], (name, plan)


def test_what_one_has_another_does_not_get(ways: Ways, db: Database) -> None:
    """Three claims at a time by ways that wait for nobody have the first three rows, and lock no more than those."""
    if not db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    assert [ways.claim("skip locked") for _ in range(3)] == [[1], [2], [3]]
    assert ways.claim("skip locked × 10") == list(range(4, 14))


def test_advisory_locks_are_taken_one_by_one(ways: Ways, db: Database) -> None:
    """Asking for the lock of a row does not take those of the rows after it."""
    if not db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    assert [ways.claim("advisory lock") for _ in range(3)] == [[1], [2], [3]]


def test_nowait_is_refused(ways: Ways, db: Database) -> None:
    """Who asks for a row that somebody has, and does not want to wait, gets an error that is no mishap."""
    if not db.locks_rows:
        pytest.skip("one writer at a time: there are no row locks")
    assert ways.claim("nowait") == [1]
    connection = ways.connect()
    connection.begin()
    with pytest.raises(Exception) as refused:
        ops.run(ways.measured.taken_by(ways.way("nowait"), []), connection)
    assert connection.trouble(refused.value) is Trouble.LOCKED


def test_who_looked_too_early_gets_nothing(ways: Ways) -> None:
    """The optimistic way takes no row that another has taken since it looked."""
    measured, way, connection = ways.measured, ways.way("optimistic"), ways.connect()
    seen = ops.run(measured.seen_by(way), connection)
    assert seen == ops.run(measured.seen_by(way), ways.connection) == [1]
    assert ops.run(measured.taken_by(way, seen), ways.connection) == [1]
    assert ops.run(measured.taken_by(way, seen), connection) == []
    assert ops.run(measured.count_claims(), connection) == (1, 1, 0)


def test_a_row_that_two_claimed_is_seen(ways: Ways) -> None:
    """Marking relies on the claim alone, so that a way that let two have a row would be found out."""
    for _ in range(2):
        ops.run(ways.measured.mark([1]), ways.connection)
    assert ops.run(ways.measured.count_claims(), ways.connection) == (1, 2, 1)
