"""What is due and was not claimed: tasks that nobody here knows, and whether a burst is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial

from dibs.dialects.dialect import Dialect
from dibs.jobs import Lane
from dibs.ops import Value
from dibs.store import Store

logger = logging.getLogger("dibs")

#: How often (seconds) a lane is looked at for tasks that nobody here knows.
UNKNOWN_EVERY = 10.0


class Unclaimed:
    """Looks at the lanes after a claim that found nothing. `known` is a value made by the dialect's `names`."""

    def __init__(self, dialect: Dialect, store: Store) -> None:
        self._dialect = dialect
        self._store = store
        self._next: dict[Lane, float] = {}
        self._reported: set[str] = set()

    def report_unknown(self, lanes: Iterable[Lane], known: Value) -> None:
        """Say once which tasks are due that this worker does not know; they are left for one that does."""
        now = time.monotonic()
        for lane in lanes:
            if now < self._next.get(lane, 0.0):
                continue
            self._next[lane] = now + UNKNOWN_EVERY
            unknown = self._store.run(partial(self._dialect.unknown_task, lane, tasks=known))
            if unknown is not None and unknown not in self._reported:
                self._reported.add(unknown)
                logger.warning(
                    "queue %r has jobs of task %r, which this worker does not know: they are left for one that does",
                    lane.queue,
                    unknown,
                )

    def nothing_left(self, lanes: Iterable[Lane], known: Value, *, queues: Sequence[str] | None) -> bool:
        """Is nothing due that this worker could do, and no lease past?"""
        if any(self._store.run(partial(self._dialect.due, lane, tasks=known)) for lane in lanes):
            return False
        return not self._store.run(lambda: self._dialect.past(queues))
