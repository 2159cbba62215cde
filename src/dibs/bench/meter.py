"""Counts what goes over dibs' own connections, on this side of them: the same on every database.

What a server counts has in it whatever else it is asked meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dibs.app import Dibs
from dibs.bench.scratch import Place
from dibs.bindings import connector
from dibs.bindings.binding import OwnConnection
from dibs.ops import Op, Request
from dibs.store import Store
from dibs.troubles import Trouble


class Reading(NamedTuple):
    """What was counted until a moment. Times are seconds."""

    statements: int
    commits: int
    waited: float  # for answers, all connections together
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


class Counted:
    """A connection that counts. For one thread at a time, as every connection is."""

    def __init__(self, connection: OwnConnection) -> None:
        self._connection = connection
        self.family = connection.family
        self.statements = 0
        self.commits = 0
        self.waited = 0.0

    def _timed(self, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.waited += time.perf_counter() - start
            self.statements += 1

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

    def hear(self, timeout: float) -> list[str]:
        return self._connection.hear(timeout)

    def close(self) -> None:
        self._connection.close()

    def trouble(self, error: BaseException) -> Trouble:
        return self._connection.trouble(error)


class MeteredDibs(Dibs):
    """An app in the bench's place, whose connections are counted."""

    def __init__(self, place: Place) -> None:
        super().__init__(lambda: place.url, schema=place.schema, prefix=place.prefix)
        self._counted: list[Counted] = []
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
            connection = Counted(connect(name))
            self._counted.append(connection)
            return connection

        return Store(self.dialect, counting, name=name, size=size, gap=gap)

    def reading(self) -> Reading:
        """Return what was counted until now."""
        counted = list(self._counted)
        return Reading(
            statements=sum(each.statements for each in counted),
            commits=sum(each.commits for each in counted),
            waited=sum(each.waited for each in counted),
            claims=self._claims,
            cpu=time.process_time(),
        )
