"""The demo's worker processes: starts them, freezes and kills one, and leaves none running.

They hold the read end of a pipe and stop when its write end is closed, which the system does even where this
process was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import click
import msgspec

from dibs.demo.worker import Orders
from dibs.worker.supervisor import VARIABLE

#: Seconds in which workers that were told to stop must have ended; when something went wrong or was interrupted they
#: are not waited for that long.
GRACE = 15.0
SHORT_GRACE = 1.0

#: Seconds until a process that was sent SIGSTOP stands still for certain.
TO_STAND_STILL = 0.005

#: Not `-m`: that would look for every module in the current directory first, which may have a queue.py of its own.
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from dibs.demo.worker import main; main()"


class WorkerProcess:
    """One worker in a process of its own. What it says goes to `log`."""

    def __init__(self, orders: Orders, log: Path, leash: int) -> None:
        self.number = orders.number
        self.log = log
        self.was_killed = False
        home = str(Path(__file__).parents[2])
        with log.open("wb") as file:
            # In a session of its own: a Ctrl-C at the terminal is for the demo, which then stops its workers.
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM, home],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**os.environ, VARIABLE: str(leash)},
                pass_fds=[leash],
                start_new_session=True,
            )
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(msgspec.json.encode(orders))
            stdin.close()
        except BrokenPipeError:
            pass  # it has died already, which `check` will say

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it stand still: what it holds now, it still holds at the end of the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(TO_STAND_STILL)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL, which no process can heed, and wait until it is gone."""
        self.was_killed = True
        self._process.kill()
        self._process.wait()

    def wait(self, timeout: float) -> bool:
        """Has it ended within `timeout` seconds?"""
        try:
            self._process.wait(max(timeout, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True


class Processes:
    """All workers of one demo, for a `with` statement."""

    def __init__(self) -> None:
        self.workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        return self

    def start(self, orders: Orders, *, logs: Path) -> None:
        """Start a worker. Raises ClickException where the system has no room for another process."""
        try:
            worker = WorkerProcess(orders, logs / f"worker-{orders.number}.log", self._read_end)
        except OSError as error:
            raise click.ClickException(f"a worker process can't be started: {error}") from error
        self.workers.append(worker)

    def with_pid(self, pid: int) -> WorkerProcess | None:
        """Return the living worker with this process id."""
        return next((each for each in self.workers if each.pid == pid and not each.was_killed), None)

    def check(self) -> None:
        """Raise ClickException if a worker has ended that nobody told to."""
        for worker in self.workers:
            code = worker.exit_code
            if code is not None and not worker.was_killed:
                how = f"exit code {code}" if code >= 0 else f"signal {-code}"
                raise click.ClickException(
                    f"worker {worker.number} (pid {worker.pid}) ended by itself ({how}){_last_words(worker.log)}"
                )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            os.close(self._write_end)
            end = time.monotonic() + (GRACE if kind is None else SHORT_GRACE)
            for worker in self.workers:
                worker.wait(end - time.monotonic())
        finally:  # also at a second Ctrl-C
            for worker in self.workers:
                if worker.exit_code is None:
                    worker.kill()
            os.close(self._read_end)


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}; all it said is in {log}" if lines else ""
