"""The worker and producer processes of a run: started, hurt, started anew where they were killed, and ended in any case.

What was done to whom, and when, is kept: it is the only excuse for a job that was taken from a worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import dibs

SCRIPTS = Path(__file__).resolve().parents[1]
#: dibs comes from where this process has it: it may be a copy with a defect in it.
PATHS = [str(Path(dibs.__file__).parents[1]), str(SCRIPTS), str(SCRIPTS.parent / "examples")]

#: Seconds in which a process that was told to stop has stopped, with its grace, and where nothing else is done to it.
STOPS_WITHIN = 20.0


class Process:
    """One process, from its start to its end, with what was done to it: `(from, to, what)`, monotonic."""

    def __init__(self, module: str, argument: str, url: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, argument],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "DATABASE_URL": url},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.harms: list[tuple[float, float, str]] = []
        self.killed = False
        self.judged = False  # was it looked at how it ended?
        self.stopping: float | None = None  # when (monotonic) it must have ended

    @property
    def code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll()

    def harm(self, what: str, *, seconds: float = 0.0) -> None:
        now = time.monotonic()
        self.harms.append((now, now + seconds, what))
        if self.stopping is not None:
            self.stopping = max(self.stopping, now + seconds + STOPS_WITHIN)

    def kill(self) -> None:
        self.killed = True
        self.harm("SIGKILL", seconds=1e9)
        self._process.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        if self.stopping is None:
            self.stopping = time.monotonic() + STOPS_WITHIN
            self.harm("SIGTERM", seconds=1e9)
            self._process.send_signal(signal.SIGTERM)

    def freeze(self, seconds: float) -> None:
        self.harm("SIGSTOP", seconds=seconds)
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def was_starting(self, code: int) -> bool:
        """Did SIGTERM meet it before it could heed it?"""
        return code == -signal.SIGTERM and "works on" not in self.log()

    def end(self) -> None:
        if self.code is None:  # only as long as it is not reaped is the number surely its own
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class Crew:
    """Places in each of which a process runs, a new one where one was killed or told to stop; for a `with` statement."""

    def __init__(self, name: str, launchers: Sequence[Callable[[int], Process]]) -> None:
        """Each launcher starts a process in its place, and is told how many there were before."""
        self.name = name
        self._launchers = launchers
        self._generation = [0] * len(launchers)
        self.places: list[Process] = []
        self.all: list[Process] = []
        self.restarts = True
        self.problems: list[str] = []

    def _start(self, place: int) -> Process:
        process = self._launchers[place](self._generation[place])
        self._generation[place] += 1
        self.all.append(process)
        return process

    def tend(self) -> None:
        """Start anew what was ended on purpose; take note of what ended by itself, or does not end."""
        for place, process in enumerate(self.places):
            code = process.code
            if code is None:
                if process.stopping is not None and time.monotonic() > process.stopping and not process.killed:
                    self.problems.append(f"{self.name} {place + 1} (pid {process.pid}) did not stop at SIGTERM")
                    process.kill()
                continue
            if not process.judged:
                process.judged = True
                self._judge(place, process, code)
            if self.restarts and (process.killed or process.stopping is not None):
                self.places[place] = self._start(place)

    def _judge(self, place: int, process: Process, code: int) -> None:
        if process.killed or (process.stopping is not None and (code == 0 or process.was_starting(code))):
            return
        last = (process.log().strip().splitlines() or ["it said nothing"])[-1]
        told = "ended by itself" if process.stopping is None else "was told to stop and ended"
        self.problems.append(f"{self.name} {place + 1} (pid {process.pid}) {told} with {code}: {last[:300]}")

    def stop(self) -> None:
        """Tell all to stop and wait until they have; start none anew."""
        self.restarts = False
        for process in self.places:
            process.terminate()
        while any(process.code is None for process in self.places):
            self.tend()
            time.sleep(0.05)
        self.tend()
        self.places = []

    def __enter__(self) -> Self:
        self.places = [self._start(place) for place in range(len(self._launchers))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.all:
            process.end()
