"""A database that is away, told once when it goes and once when it is back, by whichever thread sees it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dibs.errors import MissingPrivilege

logger = logging.getLogger("dibs")

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 1.0


class Outage:
    """What the threads of a worker know together about the database being away."""

    def __init__(self, refused: Callable[[MissingPrivilege], None] = lambda _: None) -> None:
        """`refused` hears of a privilege that is missing: no waiting will bring it."""
        self.refused = refused
        self._lock = threading.Lock()
        self._since: float | None = None
        self._failed = 0.0  # the last time
        self._pause = FIRST_PAUSE

    @property
    def since(self) -> float | None:
        """Since when (monotonic) the database can't be used; None if it can, as far as is known."""
        return self._since

    def failed(self, error: Exception) -> float:
        """Take note that the database could not be used; return for how many seconds to wait before trying again."""
        if isinstance(error, MissingPrivilege):
            self.refused(error)
        with self._lock:
            self._failed = time.monotonic()
            if self._since is None:
                self._since = self._failed
                self._pause = FIRST_PAUSE
                logger.warning("the database can't be used, trying again until it can: %s", error)
            else:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            return self._pause

    def over(self, contact: float) -> None:
        """Take note that the database answered at `contact` (monotonic). What is older than a failure says nothing:
        a thread that has nothing to ask goes round without having heard of it."""
        if self._since is None:
            return
        with self._lock:
            if self._since is not None and contact > self._failed:
                logger.warning("the database is back after %.1f s", time.monotonic() - self._since)
                self._since = None
