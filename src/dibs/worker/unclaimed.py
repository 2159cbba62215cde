"""What is due and was not claimed: tasks that nobody here knows, and whether a burst is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dibs.dialects.dialect import Dialect
from dibs.jobs import Lane
from dibs.ops import Value
from dibs.store import Store

logger = logging.getLogger("dibs")

#: How often (seconds) a lane is looked at for tasks that nobody here knows.
UNKNOWN_EVERY = 10.0

#: How often all of the lane is looked at, and not just what has become due since the look before the last one: a commit may
#: have been later than that.
ALL_EVERY = 60


@dataclass(slots=True)
class _Looks:
    """Those at one lane: when the next one is due, and the database's time at the last two."""

    next: float = 0.0
    number: int = 0
    last: Any = None
    before: Any = None

    def take_note(self, now: float, moment: Any) -> Any | None:
        """Take note of a look now, and return since when; None: of all of the lane."""
        since = self.before if self.number % ALL_EVERY else None
        self.next, self.number = now + UNKNOWN_EVERY, self.number + 1
        self.before, self.last = self.last, moment
        return since


class Unclaimed:
    """Looks at the lanes after a claim that found nothing. `known` is a value made by the dialect's `names`."""

    def __init__(self, dialect: Dialect, store: Store) -> None:
        self._dialect = dialect
        self._store = store
        self._looks: dict[Lane, _Looks] = {}
        self._reported: set[str] = set()

    def report_unknown(self, lanes: Iterable[Lane], known: Value) -> None:
        """Say once which tasks are due that this worker does not know; they are left for one that does."""
        now = time.monotonic()
        due = [lane for lane in lanes if lane not in self._looks or now >= self._looks[lane].next]
        if not due:
            return
        moment = self._store.run(self._dialect.time)
        for lane in due:
            since = self._looks.setdefault(lane, _Looks()).take_note(now, moment)
            unknown = self._store.run(partial(self._dialect.unknown_task, lane, tasks=known, since=since))
            if unknown is not None and unknown not in self._reported:
                self._reported.add(unknown)
                logger.warning(
                    "queue %r has jobs of task %r, which this worker does not know: they are left for one that does",
                    lane.queue,
                    unknown,
                )

    def nothing_left(self, lanes: Iterable[Lane], known: Value, *, queues: Sequence[str] | None) -> bool:
        """Is nothing due that this worker could do, and no lease past?"""
        if any(self._store.run(partial(self._dialect.first_due, lane, tasks=known)) for lane in lanes):
            return False
        return not self._store.run(lambda: self._dialect.past(queues))
