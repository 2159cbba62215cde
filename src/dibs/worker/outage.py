"""A database that is away, told once when it goes and once when it is back, by whichever thread sees it.

And that it is not run at by all threads at once: while it is away they share one try at a time to connect.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from dibs.errors import DatabaseError, DatabaseFull, DatabaseUnavailable, MissingPrivilege, ReadOnlyDatabase

logger = logging.getLogger("dibs")

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 1.0
JITTER = 0.2

#: So long (seconds) each thread tries for itself: most outages are over by then, such as when sessions were ended.
FREELY = 1.0


#: A database without room goes on answering what writes nothing: it can be used once no write has failed for so long
#: (seconds), in which each thread has written something.
ROOM_AFTER = 12.0


#: What one statement alone meets, while the others go on well, is said again after so long (seconds), not each time.
SAID_AGAIN = 60.0


class StillAway(DatabaseUnavailable):
    """Another thread of this worker has just tried in vain, and it is too soon to try again."""


class Outage:
    """What the threads of a worker know together about the database being away."""

    def __init__(
        self,
        *,
        longest_pause: float = LONGEST_PAUSE,
        distrust: Callable[[], None] = lambda: None,
        refused: Callable[[MissingPrivilege], None] = lambda _: None,
    ) -> None:
        """`distrust` is called when a server takes no writes any more: other connections may lead to the same one, and
        what only reads over them would never find out. `refused` hears of a privilege that is missing: no waiting will
        bring it."""
        self._longest_pause = longest_pause
        self._distrust = distrust
        self.refused = refused
        self._dice = random.Random()
        self._lock = threading.Lock()
        self._since: float | None = None
        self._date = datetime.now(UTC)  # the same moment by this machine's clock, for people
        self._failed = 0.0  # the last time
        self._full = -math.inf  # the last time that there was no room
        self._ended = -math.inf
        self._next_try = 0.0
        self._pause = FIRST_PAUSE
        self._why = ""
        self._said, self._said_why = -math.inf, ""  # when it was said last that it can't be used, and why
        self._quietly = False

    @property
    def since(self) -> float | None:
        """Since when (monotonic) the database can't be used; None if it can, as far as is known."""
        return self._since

    @property
    def calm(self) -> float:
        """For how many seconds nobody here has found the database away; infinite if nobody ever has."""
        return 0.0 if self._since is not None else time.monotonic() - self._ended

    def admit(self) -> None:
        """Let one thread try to connect, or raise StillAway: called before each try.

        While the database is away for longer than a moment, that is once in a pause, whoever comes first. As soon as it
        is back all may.
        """
        with self._lock:
            now = time.monotonic()
            if self._since is None or now - self._since < FREELY:
                return
            if now < self._next_try:
                raise StillAway(self._why)
            self._next_try = now + self._pause * self._jitter()

    def failed(self, error: Exception) -> float:
        """Take note that the database could not be used; return for how many seconds to wait before trying again."""
        if isinstance(error, MissingPrivilege):
            self.refused(error)
        with self._lock:
            now = time.monotonic()
            if isinstance(error, StillAway):
                return max(self._next_try - now, 0.0) + 0.1 * self._dice.random()
            self._failed = now
            if isinstance(error, DatabaseFull):
                self._full = now
            self._why = str(error)
            if self._since is None:
                self._since, self._date = now, datetime.now(UTC)
                self._pause = FIRST_PAUSE
                again = self._why == self._said_why and now < self._said + SAID_AGAIN
                self._quietly = again and type(error) is DatabaseError
                if not self._quietly:
                    self._said, self._said_why = now, self._why
                    logger.warning("the database can't be used, trying again until it can: %s", error)
            else:
                self._pause = min(self._pause * 2, self._longest_pause)
            pause = self._pause * self._jitter()
            self._next_try = now + pause
        if isinstance(error, ReadOnlyDatabase):
            self._distrust()
        return pause

    def over(self, contact: float) -> None:
        """Take note that the database answered at `contact` (monotonic). What is older than a failure says nothing:
        a thread that has nothing to ask goes round without having heard of it."""
        if self._since is None or contact < self._full + ROOM_AFTER:
            return
        with self._lock:
            if self._since is not None and contact > self._failed:
                self._ended = time.monotonic()
                gap = self._ended - self._since
                self._since = None
                logger.log(
                    logging.DEBUG if self._quietly else logging.WARNING,
                    "the database is back after %.1f s; it could not be used since %s UTC",
                    gap,
                    f"{self._date:%Y-%m-%d %H:%M:%S}",
                    extra={"outage_since": self._date.isoformat(), "outage_seconds": round(gap, 3)},
                )

    def _jitter(self) -> float:
        return self._dice.uniform(1 - JITTER, 1 + JITTER)
