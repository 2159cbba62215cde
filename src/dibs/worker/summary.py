"""What a worker has done of late, in one line of the log every ten seconds instead of one for each job."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger("dibs")

#: How often (seconds) it is told.
EVERY = 10.0

#: What is told also where there was none of it.
ALWAYS = ("done", "retried", "failed")


class Summary:
    """Tells how runs have ended, in any one thread."""

    def __init__(
        self, worker: str, under_way: Callable[[], tuple[int, int, int]], ended: Callable[[], Counter[str]]
    ) -> None:
        """`under_way` answers how many jobs run, how many are held and how many slots are stuck; `ended`, how many runs
        ended in which way so far."""
        self._worker = worker
        self._under_way = under_way
        self._ended = ended
        self._told: Counter[str] = Counter()
        self._told_at = time.monotonic()
        self._told_stuck = 0

    def tell(self, *, now: bool = False) -> None:
        """Tell what has ended since the last time, if it is time (or `now`).

        Where nothing has, nothing is told, unless slots are stuck that were not, or no longer are.
        """
        passed = time.monotonic() - self._told_at
        if passed < EVERY and not now:
            return
        self._told_at += passed
        counts = self._ended()
        new, self._told = counts - self._told, counts
        running, held, stuck = self._under_way()
        if not new and stuck == self._told_stuck:
            return
        self._told_stuck = stuck
        ended = [f"{new[end]} {end}" for end in (*ALWAYS, *sorted(set(new) - set(ALWAYS)))]
        logger.info(
            "worker %s: %s in %.1f s (%g/s); %d running, %d held%s",
            self._worker,
            ", ".join(ended),
            passed,
            round(new.total() / max(passed, 0.001), 1),
            running,
            held,
            f", {stuck} stuck" if stuck else "",
        )
