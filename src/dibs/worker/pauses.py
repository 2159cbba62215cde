"""Pauses between claims that find nothing: one for each kind of slots, since one may find nothing while others have work."""

from __future__ import annotations

import random

#: The first pause (seconds) after an empty poll; it doubles up to the dialect's `idle_poll`.
FIRST_PAUSE = 0.05


class Pause:
    """Of one kind of slots. Times are this process's monotonic seconds; `end` may be called from any thread."""

    def __init__(self, longest: float) -> None:
        """`longest`: seconds, at most."""
        self.longest = longest
        self.until = 0.0
        self._seconds = 0.0
        self._woken = False
        self._dice = random.Random()

    def is_over(self, now: float) -> bool:
        return now >= self.until

    def nearly_over(self, now: float) -> bool:
        """Is half of it over? Then it may end with that of others: what all of them ask is asked once."""
        return now >= self.until - self._seconds / 2

    def claims(self) -> None:
        """It is being claimed: who says from now on that something is due may speak of what this claim does not see."""
        self._woken = False

    def found_nothing(self, now: float) -> None:
        """Begin a pause, twice as long as the last one, unless somebody has spoken meanwhile."""
        if self._woken:
            return
        self._seconds = min(max(self._seconds * 2, FIRST_PAUSE), self.longest)
        self.until = now + self._seconds * self._dice.uniform(0.9, 1.1)
        if self._woken:  # just now
            self.end()

    def end(self) -> None:
        """Claim at once: something was found, or somebody says that there is something."""
        self._woken = True
        self._seconds = self.until = 0.0
