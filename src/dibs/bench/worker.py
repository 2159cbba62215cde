"""One worker process of the bench: an ordinary worker for a task that does nothing, on the bench's tables."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
from typing import Any

import msgspec

from dibs.bench.meter import MeteredDibs, Reading
from dibs.cli.logs import log_to_stderr
from dibs.cli.secrets import hide
from dibs.scratch import Place

#: The queue that the bench's jobs wait in, and the task that they are for.
QUEUE = "bench"
TASK = "noop"

#: How often (seconds) a worker says how many jobs it has run.
SAY_EVERY = 0.1

#: Seconds in which running jobs may end when the bench has no more use for this process.
JOBS_GRACE = 2.0


class Orders(msgspec.Struct):
    """What a worker process is told at its start."""

    place: Place
    concurrency: int | None
    is_async: bool
    #: Work until nothing is due? Else until told to stop, saying when each job starts.
    burst: bool


class Said(msgspec.Struct, omit_defaults=True):
    """What a worker process says: `ready`, `ran` so many jobs, `started` a job, `reading`, `done`."""

    what: str
    ran: int = 0
    number: int = -1
    at: float = 0.0
    reading: Reading | None = None


def register(app: Any, *, is_async: bool, ran: Any) -> Any:
    """Give an app the task; it calls `ran` with the job's number. Return it."""

    def noop(number: int) -> None:
        ran(number)

    async def anoop(number: int) -> None:
        ran(number)

    return app.task(name=TASK, queue=QUEUE)(anoop if is_async else noop)


class WorkerProcess:
    """Works as it was ordered to."""

    def __init__(self, orders: Orders) -> None:
        self._burst = orders.burst
        self._count = itertools.count(1)
        self._ran = 0
        self._lock = threading.Lock()
        self._app = MeteredDibs(orders.place)
        register(self._app, is_async=orders.is_async, ran=self._run if orders.burst else self._tell)
        self._worker = self._app.worker(burst=orders.burst, concurrency=orders.concurrency, grace=JOBS_GRACE)
        self._over = threading.Event()

    def _run(self, number: int) -> None:
        self._ran = next(self._count)  # may be one behind for a moment; the last one is not

    def _tell(self, number: int) -> None:
        self._say(Said("started", number=number, at=time.monotonic()))

    def _say(self, said: Said) -> None:
        with self._lock:
            sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
            sys.stdout.buffer.flush()

    def run(self) -> None:
        self._say(Said("ready"))
        sys.stdin.buffer.readline()
        threading.Thread(target=self._listen, daemon=True).start()
        if self._burst:
            threading.Thread(target=self._count_aloud, daemon=True).start()
        before = self._app.reading()
        self._worker.run()
        self._over.set()
        ran = next(self._count) - 1
        self._say(Said("done", ran=ran, at=time.monotonic(), reading=self._app.reading().since(before)))

    def _listen(self) -> None:
        """Answer each line with what was counted; at the end of them stop."""
        while sys.stdin.buffer.readline():
            self._say(Said("reading", at=time.monotonic(), reading=self._app.reading()))
        self._worker.stop()

    def _count_aloud(self) -> None:
        while not self._over.wait(SAY_EVERY):
            self._say(Said("ran", ran=self._ran))


def main() -> None:
    """Work until the bench has no more use for this process."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    hide(f"://{orders.place.url.user}:{orders.place.url.password}@")
    log_to_stderr(logging.WARNING)
    try:
        WorkerProcess(orders).run()
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more
