"""dibs as a program of its own: a plain worker with a watch before its ops, or a producer.

`python -m ours.program ASKED`, as in `peers.programs.program`; at the line `account` it says what was counted since the
last one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from peers.programs.program import Program, say

from dibs import Dibs
from dibs.depths import Depths
from dibs.exposition import measure
from dibs.metrics import Family
from dibs.worker.health import Answer
from dibs.worker.lanes import Lanes
from dibs.worker.probes import Probes
from dibs.worker.worker import Worker
from ours.connections import own_connection
from ours.marks import Marks, Moments
from ours.timings import Timings

#: Seconds between two looks at how many jobs are due to be offered, and jobs in one transaction when there is no hurry
#: to be told.
LOOK_EVERY, TOGETHER = 0.02, 1_000

timings = Timings()


class Ours(Program):
    """A program that tells on demand what it has counted."""

    def _listen(self) -> None:
        for line in sys.stdin:
            match line.strip():
                case "go":
                    self._go.set()
                case "stop":
                    self.stop.set()
                case "account":
                    say(event="account", ops=timings.taken(), memory=_memory())
        os.killpg(0, signal.SIGKILL)


def _memory() -> int:
    """Return how many bytes of memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


program = Ours()
settings: dict[str, Any] = program.settings
app = Dibs(program.url, notify=settings.get("notify", True))
folder = Path(program.asked["folder"])
everyone: int = program.asked["everyone"]  # jobs in all
runs = Marks(folder / f"runs-{program.asked['name']}", everyone)
moments = Moments(folder / "begun", everyone) if program.asked.get("timed") else None


def begin(number: int) -> None:
    """Be the code of a job."""
    if moments is not None:
        moments[number] = time.monotonic()
    runs.add(number)


async def abegin(number: int) -> None:
    """The same as an async task."""
    begin(number)


job: Any = app.task(name="job")(abegin if settings.get("tasks") == "async" else begin)


def work() -> None:
    timings.watch()
    if not settings.get("cursor", True):
        _without_cursor()
    worker = app.worker(concurrency=settings.get("concurrency"), lease=settings.get("lease", 60.0))
    thread = Thread(target=worker.run)
    with _watched(worker) if settings.get("watched") else nullcontext():
        program.ready()
        thread.start()
        program.stop.wait()
        worker.stop()
        thread.join()
    say(event="stopped")


@contextmanager
def _watched(worker: Worker) -> Iterator[None]:
    """Answer probes and tell metrics, as `dibs worker --health-port` does; the port is written into the folder."""
    worker.metrics.want_times()

    def ask(question: str) -> Answer:
        return worker.health.live() if question == "livez" else worker.health.ready()

    def families() -> list[Family]:
        return [*worker.metrics.families(), *depths.families()]

    with (
        closing(Depths(app)) as depths,
        closing(Probes(ask, host="127.0.0.1", port=0, measure=measure(families))) as probes,
    ):
        (folder / f"port-{program.asked['name']}").write_text(str(probes.port))
        yield


def _without_cursor() -> None:
    """Claim from the beginning of the lane each time, as queues without a cursor do."""
    patched: Any = Lanes
    patched.since = patched.rests = lambda lanes, lane, *, now: None


def produce() -> None:
    """Offer jobs `first`, `first` + 1, …: at a rate (jobs/s), or as fast as it goes."""
    first, rate = program.asked["first"], program.asked.get("rate")
    offered = Marks(folder / "offered", everyone)
    app.enqueue_many([])  # connects
    program.ready()
    start, sent = time.monotonic(), 0
    while sent < program.jobs:
        due = program.jobs if rate is None else min(int((time.monotonic() - start) * rate), program.jobs)
        number = min(due - sent, TOGETHER)
        if number:
            numbers = range(first + sent, first + sent + number)
            app.enqueue_many(job.call(each) for each in numbers)
            for each in numbers:
                offered.add(each)
            sent += number
        if rate is not None:
            time.sleep(LOOK_EVERY)
    say(event="offered", seconds=time.monotonic() - start)


def commit_late() -> None:
    """Enqueue in transactions of one's own that stay open for a while, until the time is over; tell how many."""
    first, seconds, longest, together = (program.asked[name] for name in ("first", "seconds", "longest", "together"))
    committed = Moments(folder / "committed", everyone)
    dice = Random(first)
    number = first
    with own_connection(program.url) as connection:
        enqueue = partial(app.enqueue_many, connection=connection)
        program.ready()
        end = time.monotonic() + seconds
        while time.monotonic() < end and number + together <= first + program.jobs:
            numbers = range(number, number + together)
            enqueue(job.call(each) for each in numbers)
            time.sleep(dice.uniform(0.0, longest))
            moment = time.monotonic()  # before the commit: what the worker is told may be here before our answer
            connection.commit()
            for each in numbers:
                committed[each] = moment
            number += together
    say(event="offered", jobs=number - first)


if __name__ == "__main__":
    {"work": work, "produce": produce, "commit late": commit_late}[program.asked["do"]]()
    os._exit(0)  # without waiting for threads of others
