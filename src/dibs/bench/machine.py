"""How busy this machine's processors are, where psutil can tell."""

from __future__ import annotations

import os
import time

try:
    import psutil
except ImportError:
    psutil = None  # type: ignore[assignment]

#: How long (seconds) the machine is watched before anything is measured.
WATCH = 0.5

#: Processors' times are counted in hundredths of a second: in less time (seconds) than this nothing can be told.
SHORTEST = 0.1

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Stopwatch:
    """Measures from its making on: seconds, and which share of all processors was busy."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._idle, self._all = _times()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    @property
    def busy(self) -> float | None:
        """The share, from 0 to 1; None without psutil, or where too little time has passed to tell."""
        idle, total = _times()
        if psutil is None or self.seconds < SHORTEST or total <= self._all:
            return None
        return min(max(1 - (idle - self._idle) / (total - self._all), 0.0), 1.0)


def busy_before() -> float | None:
    """Return how busy this machine is while we do nothing, from a moment's watching."""
    if psutil is None:
        return None
    watch = Stopwatch()
    time.sleep(WATCH)
    return watch.busy


def _times() -> tuple[float, float]:
    if psutil is None:
        return 0.0, 0.0
    times = psutil.cpu_times()
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in `user` and `nice`, too
    idle: float = times.idle + getattr(times, "iowait", 0.0)
    return idle, sum(times) - guests
