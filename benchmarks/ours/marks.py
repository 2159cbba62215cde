"""What became of each job, in files that the processes of a run share: who is killed has written it down all the same."""

from __future__ import annotations

import mmap
from pathlib import Path


class Marks:
    """A byte for each job, by its number."""

    def __init__(self, path: Path, jobs: int) -> None:
        """Make the file, of zeros, unless it is there."""
        self.jobs = jobs
        with path.open("a+b") as file:
            file.truncate(jobs)
            self._bytes = mmap.mmap(file.fileno(), jobs)

    def add(self, number: int) -> None:
        self._bytes[number] += 1

    def count(self) -> int:
        """Return how many jobs have a mark."""
        return self.jobs - self._bytes[:].count(0)

    def all(self) -> bytes:
        return self._bytes[:]

    def repeated(self) -> int:
        """Return how many have more than one."""
        marks = self._bytes[:]
        return self.jobs - marks.count(0) - marks.count(1)


class Moments:
    """A time (monotonic seconds, which all processes share) for each job, by its number; 0.0 where there is none yet."""

    def __init__(self, path: Path, jobs: int) -> None:
        with path.open("a+b") as file:
            file.truncate(8 * jobs)
            self._times = memoryview(mmap.mmap(file.fileno(), 8 * jobs)).cast("d")

    def __setitem__(self, number: int, moment: float) -> None:
        self._times[number] = moment

    def all(self) -> list[float]:
        return [float(moment) for moment in self._times]
