"""What the tasks themselves say of their runs: a line when one begins and one when its result is whole.

Written to a file of each worker's own, apart from the queue, so that the proof need not believe the queue about how
often a job was run.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dibs.running import CurrentJob


class Line(msgspec.Struct):
    """One line of a run log. `at` is seconds of this machine's clock since 1970."""

    event: str
    job: int
    claims: int
    at: float


@dataclass(slots=True)
class Run:
    """One run of a job, by the number of its worker. `ended` is None if its result never was whole."""

    worker: int
    job: int
    claims: int
    began: float
    ended: float | None = None


class RunLog:
    """The log of the worker with this number. Opened by the first line."""

    def __init__(self, folder: Path, worker: int) -> None:
        self._path = folder / f"worker-{worker}.jsonl"

    def begin(self, job: CurrentJob) -> None:
        self._write("begin", job)

    def end(self, job: CurrentJob) -> None:
        self._write("end", job)

    def _write(self, event: str, job: CurrentJob) -> None:
        line = msgspec.json.encode(Line(event, job.id, job.claims, time.time())) + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, line)  # in one piece: neither another thread nor a SIGKILL comes between
        finally:
            os.close(file)


def read(folder: Path) -> list[Run]:
    """Return the runs of all workers, in the order in which they began."""
    runs = [run for path in folder.glob("worker-*.jsonl") for run in _read_one(path)]
    return sorted(runs, key=lambda run: run.began)


def runs_of(folder: Path, worker: int) -> list[Run]:
    """Return the runs of one worker."""
    path = folder / f"worker-{worker}.jsonl"
    return _read_one(path) if path.exists() else []


def _read_one(path: Path) -> list[Run]:
    worker = int(path.stem.removeprefix("worker-"))
    runs: dict[tuple[int, int], Run] = {}
    for text in path.read_bytes().splitlines():
        line = msgspec.json.decode(text, type=Line)
        if line.event == "begin":
            runs[line.job, line.claims] = Run(worker, line.job, line.claims, line.at)
        else:
            runs[line.job, line.claims].ended = line.at
    return list(runs.values())
