"""Counts what goes over dibs' own connections, on this side of them: the same on every database.

What a server counts has in it whatever else it is asked meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dibs.app import Dibs
from dibs.bindings import connector
from dibs.bindings.binding import OwnConnection
from dibs.ops import Op, Request
from dibs.scratch import Place
from dibs.store import Store
from dibs.troubles import Trouble


class Reading(NamedTuple):
    """What was counted until a moment. Times are seconds."""

    statements: int
    commits: int
    waited: float  # in which at least one connection waited for an answer
    claims: int  # that gave at least one job
    cpu: float  # of this process

    def since(self, earlier: Reading) -> Reading:
        return Reading(
            statements=self.statements - earlier.statements,
            commits=self.commits - earlier.commits,
            waited=self.waited - earlier.waited,
            claims=self.claims - earlier.claims,
            cpu=self.cpu - earlier.cpu,
        )


class Waiting:
    """How long at least one of a process' connections has waited for an answer. Of two that wait at once one counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._since = 0.0
        self._seconds = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._number == 0:
                self._since = time.perf_counter()
            self._number += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._number -= 1
            if self._number == 0:
                self._seconds += time.perf_counter() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._seconds + (time.perf_counter() - self._since if self._number else 0.0)


class Counted:
    """A connection that counts. For one thread at a time, as every connection is."""

    def __init__(self, connection: OwnConnection, waiting: Waiting) -> None:
        self._connection = connection
        self._waiting = waiting
        self.family = connection.family
        self.may_be_forked = connection.may_be_forked
        self.pooled = connection.pooled
        self.session = connection.session
        self.statements = 0
        self.commits = 0

    def _timed(self, call: Callable[[], Any]) -> Any:
        self.statements += 1
        with self._waiting:
            return call()

    def answer(self, request: Request) -> Any:
        # What is no SELECT writes; where no transaction is open it is also its own commit.
        if not request.sql.lstrip().startswith("SELECT") and self._connection.commits_alone:
            self.commits += 1
        return self._timed(lambda: self._connection.answer(request))

    @property
    def patience(self) -> float | None:
        return self._connection.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._connection.patience = seconds

    @property
    def commits_alone(self) -> bool:
        return self._connection.commits_alone

    def begin(self, *, writes: bool = True) -> None:
        self._timed(lambda: self._connection.begin(writes=writes))

    def commit(self) -> None:
        self.commits += 1
        self._timed(self._connection.commit)

    def rollback(self) -> None:
        self._timed(self._connection.rollback)

    def prefer_indexes(self) -> None:
        self._connection.prefer_indexes()

    def hear(self, timeout: float) -> list[str]:
        return self._connection.hear(timeout)

    def unasked(self) -> bool:
        return self._connection.unasked()

    def close(self) -> None:
        self._connection.close()

    def trouble(self, error: BaseException) -> Trouble:
        return self._connection.trouble(error)


class MeteredDibs(Dibs):
    """An app in the bench's place, whose connections are counted."""

    def __init__(self, place: Place) -> None:
        super().__init__(lambda: place.url, schema=place.schema, prefix=place.prefix)
        self._counted: list[Counted] = []
        self._waiting = Waiting()
        self._claims = 0
        claim = self.dialect.claim

        def counting(*args: Any, **named: Any) -> Op[Any]:
            claims = yield from claim(*args, **named)
            self._claims += bool(claims)
            return claims

        setattr(self.dialect, "claim", counting)  # noqa: B010 - this object's alone

    def new_store(self, *, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        connect = connector(self.url)

        def counting(name: str) -> OwnConnection:
            connection = Counted(connect(name), self._waiting)
            self._counted.append(connection)
            return connection

        return Store(self.dialect, counting, name=name, size=size, gap=gap)

    def reading(self) -> Reading:
        """Return what was counted until now."""
        return reading(self._counted, self._waiting, claims=self._claims)


def reading(counted: Sequence[Counted], waiting: Waiting, *, claims: int = 0) -> Reading:
    """Return what these connections have counted until now."""
    counted = list(counted)
    return Reading(
        statements=sum(each.statements for each in counted),
        commits=sum(each.commits for each in counted),
        waited=waiting.seconds,
        claims=claims,
        cpu=time.process_time(),
    )
