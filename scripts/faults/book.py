"""The ledger that the processes of a run keep beside the database: what each has done, a line for each thing.

What is judged at the end is judged by it, never by the queue's own word alone. Each process writes to a file of its
own, a line at a time and unbuffered, so a process that is killed has told all that it did.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was done. `at` is the machine's monotonic clock, the same for all processes.

    `number` is what a producer calls its request, `job` what the queue calls it.
    """

    event: str
    pid: int
    at: float
    number: int = 0
    job: int = 0
    claims: int = 0
    detail: str = ""


class Book:
    """A process's own page: written to, never read by it."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(
            folder / f"{os.getpid()}-{time.monotonic_ns()}.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY
        )

    def write(self, event: str, *, number: int = 0, job: int = 0, claims: int = 0, detail: str = "") -> None:
        entry = Entry(event, os.getpid(), time.monotonic(), number, job, claims, detail)
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def entries(folder: Path) -> list[Entry]:
    """Return all that was written, in the order in which it happened."""
    return sorted(_read(folder), key=lambda entry: entry.at)


def _read(folder: Path) -> Iterator[Entry]:
    for page in folder.glob("*.jsonl"):
        for line in page.read_bytes().rpartition(b"\n")[0].splitlines():  # the last one may not be whole
            yield msgspec.json.decode(line, type=Entry)
