"""The workers and producers of one run, on one database: started, asked for their accounts, and ended in any case."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self
from urllib.request import urlopen

from peers.install import BENCHMARKS, Installation
from peers.process import Failed, Process

from ours.marks import Marks, Moments
from ours.timings import Times

#: Seconds between two looks at how many jobs were run.
GLANCE = 0.005

#: Seconds between two questions for probes and metrics. Kubernetes asks for probes every 10, Prometheus every 60 unless it is told.
WATCHED_EVERY = 5.0


class Crew:
    """Each job has a number below `everyone`, and its marks are in files that all share."""

    def __init__(self, url: str, everyone: int) -> None:
        self.url = url
        self.everyone = everyone
        self.workers: list[Process] = []
        self.looks = 0  # answers to probes
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-")))
        self.offered = Marks(self.folder / "offered", everyone)
        self._runs: list[Marks] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _start(self, name: str, **asked: object) -> Process:
        told = {"url": self.url, "name": name, "folder": str(self.folder), "everyone": self.everyone, **asked}
        installation = Installation([sys.executable, "-m", "ours.program"], {"PYTHONPATH": str(BENCHMARKS)})
        process = Process(name, installation, told)
        return self._stack.enter_context(process)

    def hire(self, workers: int, *, timed: bool = False, **settings: object) -> None:
        """Start workers, and wait until they are there; they begin at `go`."""
        for _ in range(workers):
            name = f"worker {len(self.workers) + 1}"
            self._runs.append(Marks(self.folder / f"runs-{name}", self.everyone))
            self.workers.append(self._start(name, do="work", timed=timed, settings=settings))
        for worker in self.workers:
            worker.heard("ready")

    def producer(self, first: int, jobs: int, *, rate: float | None = None) -> Process:
        """Start one that offers jobs, from `first` on; it waits for the word."""
        return self._start(f"producer {first}", do="produce", first=first, jobs=jobs, rate=rate)

    def late_producer(self, first: int, jobs: int, **asked: object) -> Process:
        """Start one whose transactions stay open for a while; it waits for the word."""
        return self._start(f"producer {first}", do="commit late", first=first, jobs=jobs, **asked)

    def go(self) -> float:
        """Let the workers begin; return when (`time.perf_counter`)."""
        return max(worker.tell("go") for worker in self.workers)

    def run(self) -> int:
        """Return how many jobs were run."""
        if len(self._runs) == 1:
            return self._runs[0].count()
        return sum(runs.count() for runs in self._runs)

    def wait(self, jobs: int, *, within: float = 600.0, each: Callable[[], None] = lambda: None) -> None:
        """Wait until so many jobs were run; raise Failed when nothing goes on for a minute, or the time is over."""
        end = time.monotonic() + within
        seen, quiet_since = -1, time.monotonic()
        while (run := self.run()) < jobs:
            now = time.monotonic()
            if run != seen:
                seen, quiet_since = run, now
            if now > end or now - quiet_since > 60:
                raise Failed(f"of {jobs:,} jobs {run:,} were run, and nothing more happens")
            each()
            time.sleep(GLANCE)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ask for probes and metrics at once, and then every five seconds, of workers that were hired with `watched`."""
        ports = [int((self.folder / f"port-{worker.name}").read_text()) for worker in self.workers]
        over = Event()

        def watch() -> None:
            while True:
                for port, path in product(ports, ("livez", "readyz", "metrics")):
                    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                        self.looks += len(answer.read()) > 0
                if over.wait(WATCHED_EVERY):
                    return

        watcher = Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def account(self) -> dict[str, Times]:
        """Return the times of the workers' ops since this was last asked."""
        for worker in self.workers:
            worker.tell("account")
        ops: dict[str, Times] = {}
        for worker in self.workers:
            _, told = worker.heard("account", within=60.0)
            for kind, plain in told["ops"].items():
                ops.setdefault(kind, Times()).take_in(plain)
        return ops

    def memory(self) -> list[int]:
        """Return how many bytes each worker has."""
        found = []
        for worker in self.workers:
            worker.tell("account")
            found.append(int(worker.heard("account", within=60.0)[1]["memory"]))
        return found

    def dismiss(self) -> None:
        """Stop the workers: what they hold they give back, what has run they settle."""
        for worker in self.workers:
            worker.tell("stop")
        for worker in self.workers:
            worker.heard("stopped", within=60.0)

    def repeated(self) -> int:
        """Return how many jobs were run more than once, by one worker or by several."""
        by_several = self.run() - _any(self._runs)
        return by_several + sum(runs.repeated() for runs in self._runs)

    def begun(self) -> Moments:
        """Return when each job began; only of workers that were hired with `timed`."""
        return Moments(self.folder / "begun", self.everyone)

    def committed(self) -> Moments:
        """Return when the commit of each job was asked for; only of late producers."""
        return Moments(self.folder / "committed", self.everyone)


def _any(runs: list[Marks]) -> int:
    """Return how many jobs have a mark of any worker."""
    return sum(any(marks) for marks in zip(*(each.all() for each in runs), strict=True)) if runs else 0
