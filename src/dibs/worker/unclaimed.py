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
from dibs.worker.scout import Looks

logger = logging.getLogger("dibs")

#: How often (seconds) a lane is looked at for tasks that nobody here knows.
UNKNOWN_EVERY = 10.0

#: How often all of the lane is looked at, and not just what has become due since the look before the last one: a commit may
#: have been later than that.
ALL_EVERY = 60


@dataclass(slots=True)
class _Seen:
    """Those at one lane: when the next one is due, and the database's time at the last two."""

    next: float = 0.0
    number: int = 0
    last: Any = None
    before: Any = None

    @property
    def since(self) -> Any | None:
        """Since when to look; None: at all of the lane."""
        return self.before if self.number % ALL_EVERY else None

    def take_note(self, now: float, moment: Any) -> None:
        """Take note of a look that was asked for now."""
        self.next, self.number = now + UNKNOWN_EVERY, self.number + 1
        self.before, self.last = self.last, moment


class Unclaimed:
    """Looks at the lanes after a claim that found nothing. `known` is a value made by the dialect's `names`."""

    def __init__(self, dialect: Dialect, store: Store, scouts: Store | None = None) -> None:
        self._dialect = dialect
        self._store = store
        self.looks = Looks(store, scouts)
        self._seen: dict[Lane, _Seen] = {}
        self._reported: set[str] = set()

    def report_unknown(self, lanes: Iterable[Lane], known: Value) -> None:
        """Say once which tasks are due that this worker does not know; they are left for one that does."""
        self.looks.hear()
        now = time.monotonic()
        due = [lane for lane in lanes if lane not in self._seen or now >= self._seen[lane].next]
        if not due:
            return
        self.looks.take(partial(self._look, due, known), partial(self._report, now))

    def _look(self, lanes: Sequence[Lane], known: Value, store: Store) -> tuple[Any, list[tuple[Lane, str | None]]]:
        """Return the database's time before the look, and one unknown task of each lane, where there is one."""
        moment = store.run(self._dialect.time)
        since = {lane: seen.since for lane in lanes if (seen := self._seen.get(lane)) is not None}
        return moment, [
            (lane, store.run(partial(self._dialect.unknown_task, lane, tasks=known, since=since.get(lane))))
            for lane in lanes
        ]

    def _report(self, asked: float, found: tuple[Any, list[tuple[Lane, str | None]]]) -> None:
        moment, tasks = found
        for lane, unknown in tasks:
            self._seen.setdefault(lane, _Seen()).take_note(asked, moment)
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
