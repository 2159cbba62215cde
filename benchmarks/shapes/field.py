"""The databases that it is measured on: each kind of queue is written once, and copied for each run."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from ours.crew import Crew
from ours.fill import fill
from peers.grounds import Grounds
from peers.process import Failed

from dibs import Dibs
from dibs.bindings.binding import OwnConnection
from dibs.ops import Execute, Fetch
from dibs.states import State

RUNNING = "SELECT count(*) FROM dibs_jobs WHERE status = 'running'"
STATUSES = "SELECT status, count(*) FROM dibs_jobs GROUP BY status"
#: The first version that can copy a database file by file instead of writing all of it into its log.
COPIES_FILES = 150_000


@dataclass(frozen=True)
class Queue:
    """What is in the queue before it begins: jobs that are due, in so many lanes, and what stands beside them."""

    ready: int
    queues: int = 1
    priorities: int = 1
    scheduled: int = 0
    done: int = 0
    failed: int = 0

    def write(self, url: str) -> None:
        if self.done:
            fill(url, self.done, status="done")
        if self.failed:
            fill(url, self.failed, status="failed")
        fill(url, self.ready, queues=self.queues, priorities=self.priorities)
        if self.scheduled:
            fill(url, self.scheduled, hours=24 * 7)


class Field:
    """One PostgreSQL server."""

    def __init__(self, grounds: Grounds) -> None:
        self._grounds = grounds
        self._numbers = count(1)
        self._templates: dict[Queue, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in self._templates.values():
            self._administer(f"DROP DATABASE {name}")

    def _administer(self, sql: str) -> list[tuple[object, ...]]:
        return self._grounds.administer("postgres", sql)

    def _make(self, clause: str = "") -> str:
        name = f"dibs_shapes_{os.getpid()}_{next(self._numbers)}"
        self._administer(f"CREATE DATABASE {name} {clause}")
        return name

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self._grounds.server("postgres"))._replace(path=f"/{name}"))

    def _template(self, queue: Queue) -> str:
        if queue not in self._templates:
            name = self._templates[queue] = self._make()
            Dibs(self._url(name)).migrate()
            queue.write(self._url(name))
            self._tidy(self._url(name))
        return self._templates[queue]

    def _tidy(self, url: str) -> None:
        """Have the planner know what was written, and no checkpoint be due, as on a server that runs for long."""
        connection = Dibs(url).store.open()
        connection.patience = None
        try:
            for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
                connection.answer(Execute(statement, {}))
        finally:
            connection.close()

    @contextmanager
    def game(self, queue: Queue, *, everyone: int | None = None) -> Iterator[Game]:
        """Yield a fresh copy of a queue, and drop it after. `everyone` is how many jobs there will be to be run."""
        ((version,),) = self._administer("SELECT CAST(current_setting('server_version_num') AS integer)")
        how = "STRATEGY FILE_COPY" if int(str(version)) >= COPIES_FILES else ""
        name = self._make(f"TEMPLATE {self._template(queue)} {how}")
        try:
            with Crew(self._url(name), everyone or queue.ready) as crew:
                looks = Dibs(self._url(name)).store.open()
                try:
                    yield Game(queue, crew, looks)
                finally:
                    looks.close()
        finally:
            self._administer(f"DROP DATABASE {name} WITH (FORCE)")


@dataclass
class Game:
    """A queue and those who work on it."""

    queue: Queue
    crew: Crew
    _looks: OwnConnection

    def drained(self, jobs: int) -> float:
        """Let the workers begin, and wait until so many jobs were run and what was run is settled; return how many
        seconds that took."""
        start = self.crew.go()
        self.crew.wait(jobs)
        if jobs == self.queue.ready:
            self.settled()
        return time.perf_counter() - start

    def settled(self) -> None:
        """Wait until nothing runs any more."""
        end = time.monotonic() + 60
        while (running := self._number(RUNNING)) > 0:
            if time.monotonic() > end:
                raise Failed(f"all jobs were run, and {running:,} are not settled")
            time.sleep(0.002)

    def account(self) -> None:
        """Stop the workers; raise Failed unless each job is in the state in which it must be."""
        crew, queue = self.crew, self.queue
        crew.dismiss()
        ran, repeated = crew.run(), crew.repeated()
        found = Counter({State(status): int(number) for status, number in self._looks.answer(Fetch(STATUSES, {}))})
        expected = Counter(
            {
                State.READY: queue.ready - ran + queue.scheduled,
                State.DONE: queue.done + ran,
                State.FAILED: queue.failed,
            }
        )
        if repeated or +found != +expected:
            raise Failed(f"{repeated:,} jobs were run twice; there are {dict(+found)}, not {dict(+expected)}")

    def _number(self, sql: str) -> int:
        ((number,),) = self._looks.answer(Fetch(sql, {}))
        return int(number)
