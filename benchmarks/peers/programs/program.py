"""What all programs share: being told what to do, and telling what was done, one JSON object a line.

A program is started as `python -m peers.programs.NAME ASKED`, where ASKED is a JSON object. It says `ready` when all
is imported and connected, waits for the line `go`, does what was asked, and says what came of it. When its standard
input ends, so does it, with all that it has started: nothing outlives a run that was killed.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

#: Seconds between two enqueues while latency is measured: the worker is idle in between.
PAUSES = (0.02, 0.06)


def say(**told: Any) -> None:
    """Tell the run something."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


class Program:
    """What this process was asked to do, and its account of the jobs that it ran."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = json.loads(sys.argv[1])
        self.url: str = self.asked["url"]
        self.jobs: int = self.asked.get("jobs", 0)
        self.settings: dict[str, Any] = self.asked.get("settings", {})
        #: A byte for each job: how often it was run. Shared with processes that are forked.
        self._runs = mmap.mmap(-1, max(self.jobs, 1))
        self._calls = count(1)
        self._began = [0.0] * self.jobs if self.asked.get("timed") else None
        self._go = threading.Event()
        self.stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        # Not sys.stdin: what is forked closes that one, and would wait for the lock that we hold while we read.
        for line in open(0, closefd=False):  # noqa: SIM115
            if line.strip() == "go":
                self._go.set()
            elif line.strip() == "stop":
                self.stop.set()
        # We lead a process group of our own, so this ends what was forked too.
        os.killpg(0, signal.SIGKILL)

    def ready(self) -> None:
        """Say that we could begin, and wait for the word."""
        say(event="ready")
        self._go.wait()

    # -- enqueue ---------------------------------------------------------------------------------

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Wait for the word, and tell how many seconds the block took."""
        self.ready()
        start = time.perf_counter()
        yield
        say(event="enqueued", seconds=time.perf_counter() - start)

    def paced(self, enqueue: Callable[[int], object]) -> None:
        """Enqueue one job after the other, with pauses; tell when each was sent."""
        self.ready()
        sent = []
        for number in range(self.jobs):
            time.sleep(random.uniform(*PAUSES))
            sent.append(time.monotonic())
            enqueue(number)
        say(event="sent", times=sent)

    async def apaced(self, enqueue: Callable[[int], Awaitable[object]]) -> None:
        """`paced` where enqueue is awaited."""
        self.ready()
        sent = []
        for number in range(self.jobs):
            time.sleep(random.uniform(*PAUSES))
            sent.append(time.monotonic())
            await enqueue(number)
        say(event="sent", times=sent)

    # -- work ------------------------------------------------------------------------------------

    def run(self, number: int) -> None:
        """Be the job's code: count it, and tell when the last one was called."""
        if self._began is not None:
            self._began[number] = time.monotonic()
        self._runs[number] += 1
        if next(self._calls) == self.jobs:
            say(event="called")

    def watch(self) -> None:
        """Tell when each job was called, where it is other processes of ours that call them."""

        def look() -> None:
            while self._runs[:].count(0):
                time.sleep(0.002)
            say(event="called")

        threading.Thread(target=look, daemon=True).start()

    async def until_stopped(self, worker: asyncio.Task[Any]) -> None:
        """Wait for the word to stop; end with 1 if the worker ends before."""
        stopped = asyncio.create_task(asyncio.to_thread(self.stop.wait))
        await asyncio.wait([stopped, worker], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            # Not by raising: the thread that waits for the word would keep the process.
            sys.stderr.write(f"the worker ended: {worker.exception()!r}\n")
            sys.stderr.flush()
            os._exit(1)

    def account(self) -> None:
        """Tell which jobs were run; the last thing that is said."""
        runs = self._runs[: self.jobs]
        say(event="account", missed=runs.count(0), repeated=sum(run > 1 for run in runs), began=self._began)

    def end(self) -> None:
        """Give the account, and end without waiting for threads that a library left behind."""
        self.account()
        os._exit(0)
