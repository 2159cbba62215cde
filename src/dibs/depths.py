"""What the database knows of a queue, as metrics: read when it is asked for, and never dearer than it may be.

However often it is asked, and however large the table is: answers are kept for some seconds, for as long as asking keeps
to a twentieth of one connection's time; what has ended is counted in a thread beside, and keeps to a hundredth.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from functools import partial

from dibs.app import Dibs
from dibs.errors import DatabaseError
from dibs.jobs import Lane
from dibs.metrics import Family, Sample

logger = logging.getLogger("dibs")

#: An answer is good for so long (seconds), or, where it was dear, for so many times as long as it took.
KEPT = 5.0
KEPT_TIMES = 20.0

#: The same for what has ended: it is counted over the whole table.
ENDED_KEPT = 60.0
ENDED_KEPT_TIMES = 100.0

#: How long (seconds) an answer waits for what has ended; then it goes without, or with what was known before.
ENDED_WAITS = 2.0

#: Jobs of a lane, and of all lanes together, that are counted; more are given as so many.
MOST_OF_LANE = 100_000
MOST_COUNTED = 1_000_000

#: Lanes that are looked at; more are left out, and counted.
MOST_LANES = 500


class Depths:
    """Reads one app's database. Safe to be asked by several threads."""

    def __init__(self, app: Dibs) -> None:
        self._app = app
        self._store = app.new_store(name="dibs metrics", size=2)
        self._lock = threading.Lock()
        self._known: list[Family] = []
        self._good_until = 0.0
        self._ended: list[Family] = []
        self._count_at = 0.0
        self._counting: threading.Thread | None = None

    def families(self, *, raises: bool = False) -> list[Family]:
        """Return what is known, asking the database if that is not from just now.

        Where the database can't be asked, `dibs_up` is 0 and the other families are missing, unless it `raises`
        DatabaseError, or SchemaError, instead.
        """
        with self._lock:
            if time.monotonic() >= self._good_until:
                began = time.monotonic()
                try:
                    self._known = [*self._read(), Family("dibs_up", "gauge", _UP, [Sample({}, 1)])]
                except DatabaseError as error:
                    if raises:
                        raise
                    logger.debug("the database can't be asked for metrics: %s", error)
                    self._known = [Family("dibs_up", "gauge", _UP, [Sample({}, 0)])]
                now = time.monotonic()
                self._good_until = now + max(KEPT, KEPT_TIMES * (now - began))
            answer = self._known
            if answer[-1].samples[0].value and time.monotonic() >= self._count_at and self._counting is None:
                self._counting = threading.Thread(target=self._count, name="dibs-counting", daemon=True)
                self._counting.start()
            counting = self._counting
        if counting is not None:
            counting.join(ENDED_WAITS)
        return [*answer, *self._ended]

    def close(self) -> None:
        self._store.close()

    def _read(self) -> list[Family]:
        dialect = self._app.dialect
        lanes: list[Lane] = sorted(self._store.run(lambda: dialect.lanes(None)))
        ready: Counter[str] = Counter()
        scheduled: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        capped: set[str] = set()
        left = MOST_COUNTED
        for lane in lanes[:MOST_LANES]:
            limit = max(min(MOST_OF_LANE, left), 1)
            depth = self._store.run(partial(dialect.lane_depth, lane, limit=limit))
            ready[lane.queue] += depth.due
            scheduled[lane.queue] += depth.scheduled
            left -= depth.due + depth.scheduled
            if max(depth.due, depth.scheduled) >= limit:
                capped.add(lane.queue)
            if depth.oldest is not None:
                oldest[lane.queue] = max(oldest.get(lane.queue, 0.0), depth.oldest)
        running = self._store.run(dialect.running)
        jobs = [Sample({"queue": queue, "status": "ready"}, number) for queue, number in sorted(ready.items())]
        jobs += [Sample({"queue": queue, "status": "scheduled"}, number) for queue, number in sorted(scheduled.items())]
        jobs += [Sample({"queue": each.queue, "status": "running"}, each.running) for each in running]
        ages = [Sample({"queue": queue}, oldest.get(queue, 0.0)) for queue in sorted(ready)]
        past = [Sample({"queue": each.queue}, each.past) for each in running]
        paused = [Sample({"queue": queue}, 1) for queue, _, _ in self._store.run(dialect.paused)]
        return [
            Family("dibs_jobs", "gauge", _JOBS, jobs),
            Family("dibs_oldest_ready_seconds", "gauge", _OLDEST, ages),
            Family("dibs_leases_past", "gauge", _PAST, past),
            Family("dibs_queue_paused", "gauge", "1 for each queue that is paused.", paused),
            Family(
                "dibs_jobs_not_counted",
                "gauge",
                _NOT_COUNTED,
                [Sample({"queue": queue}, 1) for queue in sorted(capped)],
            ),
            Family("dibs_lanes_left_out", "gauge", _LEFT_OUT, [Sample({}, max(len(lanes) - MOST_LANES, 0))]),
            *self._workers(),
        ]

    def _workers(self) -> list[Family]:
        try:
            found = self._store.run(self._app.dialect.workers)
        except DatabaseError:
            return []  # no register, or none that may be read
        states = Counter(worker.state for worker in found)
        samples = [Sample({"state": state}, states[state]) for state in ("working", "stopping", "quiet")]
        return [Family("dibs_workers", "gauge", "Workers in the register, by state.", samples)]

    def _count(self) -> None:
        began = time.monotonic()
        try:
            ended, duplicates = self._store.run(self._app.dialect.ended)
            self._ended = [
                Family(
                    "dibs_jobs_ended",
                    "gauge",
                    _ENDED,
                    [
                        Sample({"queue": queue, "status": status}, number)
                        for (queue, status), number in sorted(ended.items())
                    ],
                ),
                Family("dibs_duplicates", "gauge", _DUPLICATES, [Sample({}, duplicates)]),
            ]
        except DatabaseError as error:
            logger.debug("what has ended can't be counted for metrics: %s", error)
        now = time.monotonic()
        self._count_at = now + max(ENDED_KEPT, ENDED_KEPT_TIMES * (now - began))
        self._counting = None


_UP = "Whether the database could be asked."
_JOBS = "Jobs that have not ended, by queue and status: ready is due now, scheduled is later. Up to 100,000 are counted of a lane."
_OLDEST = "For how long the oldest ready job of the queue has been due."
_PAST = "Running jobs whose lease is over and that upkeep has not taken back."
_NOT_COUNTED = "1 for each queue that has more jobs than were counted."
_LEFT_OUT = "Lanes (a queue at a priority) that were not looked at, since there are too many."
_ENDED = "Jobs that have ended and are kept, by queue and status. Counted now and then, over the whole table."
_DUPLICATES = "Enqueues that were refused as duplicates of jobs that are kept. Counted now and then."
