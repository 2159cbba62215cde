"""The scout: looks at what takes long while claims go on: a lane from its beginning, or which lanes there are.

Where a held snapshot keeps the dead rows of all that was claimed, such a look takes as long as hundreds of claims, and
everything that is due meanwhile would wait for it (measured with 400,000 dead rows: 0.1 s, more than once a second). So it
is done in a thread and on a connection of its own, and what comes of it is taken note of between two claims.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from dibs.errors import DatabaseError
from dibs.ops import Op
from dibs.store import Store

logger = logging.getLogger("dibs")

T = TypeVar("T")


class Scout:
    """Takes one look at a time. Asked and heard by one thread; it has a thread of its own only while it looks."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        """`wake` is called, in its thread, when it has seen something to claim."""
        self._store = store
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._reports: deque[Callable[[], None]] = deque()

    def ask(self, make: Callable[[], Op[T]], report: Callable[[T, float], None], *, wakes: Callable[[T], bool]) -> bool:
        """Let it run the op that `make` makes; `report` is then called, by `hear`, with the answer and how long (seconds) it
        took. `wakes` says whether an answer is worth a claim at once. False while it is looking at something else."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=self._look, args=(make, report, wakes), name="dibs-scout", daemon=True)
        self._thread.start()
        return True

    def hear(self) -> None:
        """Report what it has seen since."""
        while self._reports:
            self._reports.popleft()()

    def close(self) -> None:
        """Wait for a look that is under way, though not for long."""
        if self._thread is not None:
            self._thread.join(timeout=2)

    def _look(self, make: Callable[[], Op[T]], report: Callable[[T, float], None], wakes: Callable[[T], bool]) -> None:
        start = time.monotonic()
        try:
            answer = self._store.run(make, persistent=False)
        except DatabaseError as error:  # the claims meet it too, and say so
            logger.debug("could not take a look beside the claims: %s", error)
            return
        took = time.monotonic() - start
        self._reports.append(lambda: report(answer, took))
        if wakes(answer):
            self._wake()
