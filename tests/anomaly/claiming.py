"""How long claims take on a table, measured one after the other on a connection of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from conformance.hands import Queue, new_job, verdict
from databases import Database
from dibs import ops
from dibs.jobs import Lane, Wanted
from dibs.ops import Op
from dibs.states import State
from dibs.worker.lanes import Lanes

#: The usual 95th percentile of a claim of one row here (seconds): how much slower it is on a table that has nothing else
#: in it says how busy the machine is.
USUAL = 0.002


class Claimer:
    """Enqueues, claims and settles one job at a time."""

    def __init__(
        self, db: Database, *, queue: str = "default", enqueues: bool = True, like_a_worker: bool = False
    ) -> None:
        """`like_a_worker`: mostly from where the claim before was, and from the beginning of the lane as often as a
        worker does. Otherwise each claim begins there, and walks over what the database has not cleaned away yet."""
        self._queue = Queue(db)
        self._lane = Lane(queue, 0)
        self._lanes = Lanes([queue]) if like_a_worker else None
        if self._lanes is not None:
            self._lanes.learn([self._lane])
        self._enqueues = enqueues
        self._connection = db.connect()

    def __enter__(self) -> Claimer:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._queue.close()

    def once(self) -> float:
        """Return how long (seconds) one claim took, from its begin to its commit."""
        dialect, connection = self._queue.dialect, self._connection
        if self._enqueues:
            self._queue.enqueue(new_job(queue=self._lane.queue, task="note"))
        lane, lanes, tasks = self._lane, self._lanes, dialect.names(["note"])
        began = time.monotonic()
        since = lanes.since(lane, now=began) if lanes is not None else None
        connection.begin()
        claims = ops.run(
            dialect.claim(Wanted(lane, since=since, tasks=tasks, worker="w", lease=60.0, start=1, limit=1)), connection
        )
        connection.commit()
        ended = time.monotonic()
        assert len(claims) == 1
        if lanes is not None:
            lanes.claimed(lane, claims[0].position, full=since is None, took=ended - began, now=ended)
        connection.begin()
        ops.run(dialect.settle([verdict(claims[0], State.DONE)], worker="w"), connection)
        connection.commit()
        return ended - began

    def p95(self, number: int = 200) -> float:
        """Return the 95th percentile of so many claims; the first ones, which prepare statements, are left out."""
        for _ in range(12):
            self.once()
        return p95([self.once() for _ in range(number)])

    def takes(self, make: Callable[[], Op[Any]], number: int = 20) -> float:
        """Return how long (seconds) an op takes that changes nothing here, at the median."""
        times = []
        for _ in range(number):
            began = time.monotonic()
            self._connection.begin()
            ops.run(make(), self._connection)
            self._connection.rollback()
            times.append(time.monotonic() - began)
        return sorted(times)[number // 2]


def p95(times: list[float]) -> float:
    return sorted(times)[len(times) * 95 // 100]


def busy(alone: float) -> float:
    """Return by what factor the machine is slower now than it usually is, by what claims take on an empty table."""
    return max(alone / USUAL, 1.0)
