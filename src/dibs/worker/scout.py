"""The scout: looks at what takes long while claims go on: a lane from its beginning, which lanes there are, why nothing
was found.

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
from dibs.store import Store

logger = logging.getLogger("dibs")

T = TypeVar("T")

#: What asks a store's database, once or several times.
Look = Callable[[Store], T]

#: What takes longer than this (seconds) is left to a scout: all that is due would wait for it.
LONG = 0.01


class Scout:
    """Takes one look at a time. Asked and heard by one thread; it has a thread of its own only while it looks."""

    def __init__(self, store: Store, wake: Callable[[], None]) -> None:
        """`wake` is called, in its thread, when it has seen something to claim."""
        self._store = store
        self._wake = wake
        self._thread: threading.Thread | None = None
        self._reports: deque[Callable[[], None]] = deque()

    def ask(
        self, look: Look[T], report: Callable[[T, float], None], *, wakes: Callable[[T], bool] = lambda _: False
    ) -> bool:
        """Let it take a look; `report` is then called, by `hear`, with the answer and how long (seconds) it took. `wakes` says
        whether an answer is worth a claim at once. False while it is looking at something else."""
        if self._thread is not None and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=self._look, args=(look, report, wakes), name="dibs-scout", daemon=True)
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

    def _look(self, look: Look[T], report: Callable[[T, float], None], wakes: Callable[[T], bool]) -> None:
        start = time.monotonic()
        try:
            answer = look(self._store)
        except DatabaseError as error:  # the claims meet it too, and say so
            logger.debug("could not take a look beside the claims: %s", error)
            return
        took = time.monotonic() - start
        self._reports.append(lambda: report(answer, took))
        if wakes(answer):
            self._wake()


class Looks:
    """Looks of one kind that nobody waits for: by the thread that asks while they are short, then by a scout of their own."""

    def __init__(self, store: Store, scouts: Store | None) -> None:
        self._store = store
        self._scout = Scout(scouts, lambda: None) if scouts is not None else None
        self._took = 0.0

    def take(self, look: Look[T], report: Callable[[T], None]) -> bool:
        """Take a look, and report the answer: now, or when it is heard. False while another one is under way."""
        if self._scout is not None and self._took > LONG:
            return self._scout.ask(look, lambda answer, took: self._report(answer, took, report))
        start = time.monotonic()
        answer = look(self._store)
        self._report(answer, time.monotonic() - start, report)
        return True

    def hear(self) -> None:
        """Report what has been seen since."""
        if self._scout is not None:
            self._scout.hear()

    def close(self) -> None:
        """Wait for a look that is under way, though not for long."""
        if self._scout is not None:
            self._scout.close()

    def _report(self, answer: T, took: float, report: Callable[[T], None]) -> None:
        self._took = took
        report(answer)
