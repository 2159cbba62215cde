"""The workers' register as data: who works on the queue, what it serves and what it does. For information only.

No job depends on it: a worker that is not in it works, and one that is in it may have been killed a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

#: A worker that has not been seen for longer (seconds) is quiet. It writes its row every ten seconds at least.
QUIET = 35.0

#: Names in the list of a worker's queues, or tasks, at most, and how long (bytes) the list may be. The others are counted.
MOST_NAMES = 1_000
LONGEST_LIST = 65_536


class SlotsInUse(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of a worker's slots: `thread`, `loop` or `process`.

    `busy` of the `size` slots run a job; `stuck` of those are taken by code that ran out of time and goes on.
    """

    kind: str
    size: int
    busy: int
    stuck: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself once: who it is and what it serves."""

    worker: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself now and then. Moments are aware UTC, by the database's clock."""

    state: str
    slots: list[SlotsInUse]
    claims: int
    done_rate: float
    failed_rate: float
    last_error: str | None
    last_error_at: datetime | None
    claimed_queue: str | None
    claimed_at: datetime | None
    polls: dict[str, Any] | None
    detail: dict[str, Any] | None


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as its row said when it was looked up. Times are aware UTC, by the database's clock.

    - `worker`: its name, as in a job's `lease_owner`. `state`: `working`, `stopping`, or `quiet` where it has not been
      seen for 35 seconds: it was killed, is frozen, can't reach the database or may not write its row. After ten minutes
      the row is removed. `seen_ago`: seconds since it wrote its row.
    - `queues`: those that it serves, None for all. `tasks`: the names that it knows. Of long lists the first thousand names
      are kept; `queues_left_out` and `tasks_left_out` count the others.
    - `claims`: the jobs that it holds, running or claimed ahead. `done_rate`, `failed_rate`: runs a second over the
      last minute; a run that failed and is tried again counts as failed.
    - `last_error`: the last line of what went wrong in the last run that failed, scrubbed, and which job that was.
    - `claimed_queue`, `claimed_at`: its last claim that found something.
    - `polls`: why its polls came back empty, by queue, as far as it looked. `detail`: what else it says of itself.
    """

    worker: str
    host: str
    pid: int
    version: str
    state: str
    queues: list[str] | None
    queues_left_out: int
    tasks: list[str]
    tasks_left_out: int
    slots: list[SlotsInUse]
    claims: int
    done_rate: float
    failed_rate: float
    last_error: str | None
    last_error_at: datetime | None
    claimed_queue: str | None
    claimed_at: datetime | None
    polls: dict[str, Any] | None
    detail: dict[str, Any] | None
    started_at: datetime
    seen_at: datetime
    seen_ago: float

    def serves(self, queue: str) -> bool | None:
        """Does it serve this queue? None where that can't be told, since its list was too long to be kept whole."""
        if self.queues is None or queue in self.queues:
            return True
        return None if self.queues_left_out else False

    def knows(self, task: str) -> bool | None:
        """Does it know this task? None where that can't be told, since its list was too long to be kept whole."""
        if task in self.tasks:
            return True
        return None if self.tasks_left_out else False


def alive(workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Return those that have been seen of late."""
    return [worker for worker in workers if worker.state != "quiet"]


def bounded(names: Iterable[str]) -> tuple[list[str], int]:
    """Return the first names, as many as the row has room for, and how many are left out.

    >>> bounded(["mail", "exports"])
    (['mail', 'exports'], 0)
    """
    kept: list[str] = []
    room = LONGEST_LIST
    left_out = 0
    for name in names:
        room -= len(name.encode()) + 4
        if room < 0 or len(kept) >= MOST_NAMES:
            left_out += 1
        else:
            kept.append(name)
    return kept, left_out
