"""The scout: looks at a lane from its beginning while claims go on from its cursor.

Where a held snapshot keeps the dead rows of all that was claimed, a full scan takes as long as hundreds of claims, and
everything that is due meanwhile waits for it (measured with 400,000 dead rows: 0.2 s, for one claim in twenty). So it only
looks, in a thread and on a connection of its own; what it finds is claimed from the cursor, which goes back there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dibs.errors import DatabaseError
from dibs.jobs import Lane, Position
from dibs.ops import Value
from dibs.store import Store
from dibs.worker.slots import Slots

logger = logging.getLogger("dibs")


class Report(NamedTuple):
    """The first that is due in a lane for the tasks of some slots, if anything is, and how long (seconds) it took to see."""

    slots: Slots
    lane: Lane
    first: Position | None
    took: float


class Scout:
    """Looks at one lane at a time. Asked and heard by one thread; it has a thread of its own only while it looks."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        """`wake` is called, in its thread, when it has found something."""
        self._store = store
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._reports: deque[Report] = deque()

    def ask(self, slots: Slots, lane: Lane, tasks: Value) -> bool:
        """Let it look at a lane for what these tasks could do. False while it is looking for something else."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=self._look, args=(slots, lane, tasks), name="dibs-scout", daemon=True)
        self._thread.start()
        return True

    def reports(self) -> list[Report]:
        """Return what it has seen since it was last asked for that."""
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def _look(self, slots: Slots, lane: Lane, tasks: Value) -> None:
        start = time.monotonic()
        first = None
        try:
            first = self._store.run(lambda: self._store.dialect.first_due(lane, tasks=tasks), persistent=False)
        except DatabaseError as error:  # the claims meet it too, and say so
            logger.debug("could not look at a lane: %s", error)
        self._reports.append(Report(slots, lane, first, time.monotonic() - start))
        if first is not None:
            self._wake()
