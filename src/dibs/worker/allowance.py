"""How much a worker may do before it ends, so that another one starts afresh: how many jobs, how much memory, how long.

A cure for code that leaks, which is rarely one's own.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dibs.errors import ConfigurationError

#: How often (seconds) the memory is looked at.
LOOK_EVERY = 2.0

#: A worker ends up to this share of its age early: of many that started together not all end at once.
EARLY = 0.1

_PROC = Path("/proc")


class Allowance:
    """The memory (bytes) and the age (seconds) that a worker is allowed. The jobs are counted by whoever claims."""

    def __init__(self, *, memory: int | None, age: float | None, processes: Callable[[], Sequence[int]]) -> None:
        """`processes` answers the ids of the processes whose memory counts.

        Raises ConfigurationError where they take more already: no job would ever be run.
        """
        self._memory = memory
        self._age = age
        self._processes = processes
        self._end_at = None if age is None else time.monotonic() + age * (1 - EARLY * random.random())
        self._look_at = 0.0
        if memory is not None and (taken := memory_of(processes())) > memory:
            raise ConfigurationError(
                f"max_memory: the worker takes {in_units(taken)} before its first job, and {in_units(memory)} is allowed"
            )

    def exceeded(self) -> str | None:
        """Return why the worker should end now, if it should."""
        now = time.monotonic()
        if self._age is not None and self._end_at is not None and now >= self._end_at:
            return f"it has worked for about as long as it may, {self._age:g} s"
        if self._memory is not None and now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            if (taken := memory_of(self._processes())) > self._memory:
                return f"its memory is {in_units(taken)}, and {in_units(self._memory)} is allowed"
        return None


def memory_of(processes: Sequence[int]) -> int:
    """Return the resident memory of processes, in bytes, together; those that are gone count nothing."""
    if (_PROC / "self/statm").exists():
        return sum(map(_resident, processes))
    asked = ["ps", "-o", "rss=", "-p", ",".join(map(str, processes))]
    told = subprocess.run(asked, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stdout
    return sum(int(kilobytes) for kilobytes in told.split()) * 1024


def _resident(process: int) -> int:
    try:
        return int((_PROC / str(process) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def in_units(number: int) -> str:
    """Return a number of bytes for a person to read.

    >>> in_units(512 * 1024**2), in_units(3 * 1024**3 // 2)
    ('512M', '1.5G')
    """
    return f"{number / 1024**3:.3g}G" if number >= 1024**3 else f"{number / 1024**2:.3g}M"
