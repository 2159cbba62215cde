"""What happened, written down by the tasks themselves: one file, appended to by all worker processes.

Starts and overlaps are judged by it and never by the queue's own columns.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dibs import current_job


class Entry(msgspec.Struct, frozen=True):
    """One thing that a run of a job did. `at` is the machine's monotonic clock, the same for all processes."""

    event: str
    job: int
    attempt: int
    claims: int
    pid: int
    at: float
    detail: str = ""


class Diary:
    """An append-only file of entries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def write(self, event: str, detail: str = "") -> None:
        """Write down what the job that is running here did."""
        job = current_job()
        entry = Entry(event, job.id, job.attempts, job.claims, os.getpid(), time.monotonic(), detail)
        with self._path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(entry) + b"\n")  # short enough that nobody's else comes between

    @contextmanager
    def run(self) -> Iterator[None]:
        """Write down the start of a run, and its end."""
        self.write("start")
        try:
            yield
        except BaseException as error:
            self.write("raised", type(error).__name__)
            raise
        self.write("end")

    def entries(self, event: str | None = None, *, job: int | None = None) -> list[Entry]:
        """Return what was written, in order: of an event, of a job."""
        lines = self._path.read_bytes().rpartition(b"\n")[0].splitlines()  # the last one may not be written in full
        entries = [msgspec.json.decode(line, type=Entry) for line in lines]
        return [entry for entry in entries if event in (None, entry.event) and job in (None, entry.job)]

    def starts(self) -> Counter[int]:
        """Return how often each job was started."""
        return Counter(entry.job for entry in self.entries("start"))

    def pids(self, event: str = "start") -> Counter[int]:
        """Return how many such entries each process wrote."""
        return Counter(entry.pid for entry in self.entries(event))

    def overlaps(self) -> list[tuple[Entry, Entry]]:
        """Return the pairs of runs of one job that were under way at the same time.

        A run without an end was under way until its process died; that is not known here, so it overlaps nothing.
        """
        runs: dict[int, list[tuple[Entry, float]]] = {}
        ends = {(entry.job, entry.claims): entry.at for entry in self.entries() if entry.event in ("end", "raised")}
        for start in self.entries("start"):
            runs.setdefault(start.job, []).append((start, ends.get((start.job, start.claims), start.at)))
        return [
            (first, second)
            for of_job in runs.values()
            for place, (first, end) in enumerate(of_job)
            for second, _ in of_job[place + 1 :]
            if second.at < end
        ]
