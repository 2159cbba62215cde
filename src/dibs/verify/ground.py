"""What every check works with: the scratch queue, worker processes that can be killed and frozen, and patience.

Whatever ends a run, no process of it stays, not one that stands still either: a process group whose parent is gone is
woken by the system, and hung up.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

import msgspec

from dibs.dialects.verify import verifying
from dibs.jobs import JobRecord
from dibs.scratch import Place
from dibs.states import State
from dibs.verify.tasks import Tasks
from dibs.verify.worker import Orders, Said

T = TypeVar("T")

#: The lease (seconds) of the workers that are killed and frozen: short, since a check waits for its end.
LEASE = 2.0

#: Seconds that a check may take, and after which what it waits for has not happened.
PATIENCE = 40.0

#: How often (seconds) it is looked whether it has.
LOOK_EVERY = 0.05

#: Seconds in which a worker that is to stop has stopped; then it is killed.
GRACE = 3.0

#: Not `-m`: that would look for every module in the current directory first, which may have a queue.py of its own.
PROGRAM = "import sys; sys.path.append(sys.argv[1]); from dibs.verify.worker import main; main()"


class Failed(Exception):
    """A promise was broken; the text is the evidence."""


class Skipped(Exception):
    """A promise can't be tried here; the text is the reason."""


class WorkerProcess:
    """A worker in a process of its own, and what it has said."""

    def __init__(self, orders: Orders) -> None:
        self._said: list[Said] = []
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        # In a group of its own: a Ctrl-C at the terminal is for the command, which then ends its workers. Not in a
        # session of its own: there the system would leave one that stands still as it is when the command is killed.
        self._process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            process_group=0,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        stdin = self._stdin()
        with contextlib.suppress(BrokenPipeError):  # it has died already, which `check` says
            stdin.write(msgspec.json.encode(orders) + b"\n")
            stdin.flush()

    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _listen(self, stdout: IO[bytes]) -> None:
        decoder = msgspec.json.Decoder(Said)
        for line in stdout:
            with contextlib.suppress(msgspec.DecodeError):  # a print of somebody's
                self._said.append(decoder.decode(line))

    def says(self, what: str, job: int) -> bool:
        """Has it said this of a job?"""
        return any(said.what == what and said.job == job for said in list(self._said))

    @property
    def sessions(self) -> list[int]:
        """The sessions that it has opened so far."""
        return [said.session for said in list(self._said) if said.what == "session"]

    def check(self) -> None:
        """Raise Failed if it has ended by itself."""
        if (code := self._process.poll()) is not None and code != -signal.SIGKILL:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            raise Failed(f"worker {self.pid} ended by itself ({code})" + (f": {lines[-1].strip()}" if lines else ""))

    def kill(self) -> None:
        """End it with SIGKILL, which no process can heed, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Tell it to stop; `end` waits for it."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin().close()

    def end(self, timeout: float) -> None:
        """See to it that it has ended, after `timeout` seconds by force."""
        self.stop()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._errors.close()


class Ground:
    """The scratch queue as one check has it, for a `with` statement; at its end none of its workers is left.

    `over`: set when all checks are to give up.
    """

    def __init__(self, place: Place, over: threading.Event) -> None:
        self.place = place
        self.app = place.app()
        self.statements = verifying(self.app.dialect)
        self.tasks = Tasks(self.app)
        #: What the workers' sessions are opened under, where a server keeps that.
        self.name = f"dibs verify {secrets.token_hex(4)}"
        self._workers: list[WorkerProcess] = []
        self._over = over
        self._end = time.monotonic() + PATIENCE

    def __enter__(self) -> Self:
        return self

    def worker(self, queue: str) -> WorkerProcess:
        """Start a worker on a queue."""
        worker = WorkerProcess(Orders(self.place, queue, LEASE, self.name))
        self._workers.append(worker)
        return worker

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Return what `condition` returns as soon as it is true. Raises Failed that says what was waited for."""
        while not (value := condition()):
            for worker in self._workers:
                worker.check()
            if time.monotonic() > self._end:
                raise Failed(f"after {PATIENCE:.0f} s it was still waited until {what}")
            if self._over.wait(LOOK_EVERY):
                raise Failed("interrupted")
        return value

    def until_done(self, job_id: int) -> JobRecord:
        """Return a job once it is done. Raises Failed when it ends otherwise, or not at all."""
        seen: list[JobRecord] = []

        def ended() -> bool:
            seen[:] = [self.app.job(job_id)]
            return seen[0].finished_at is not None

        try:
            self.until(ended, f"job {job_id} has ended")
        except Failed as failure:
            raise Failed(f"{failure}; it is {seen[0].status} at attempt {seen[0].attempts}") from None
        if seen[0].status is not State.DONE:
            raise Failed(f"job {job_id} ended {seen[0].status}: {seen[0].error}")
        return seen[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for worker in self._workers:
                worker.thaw()
                worker.stop()
            end = time.monotonic() + (GRACE if kind is None else 0.0)
            for worker in self._workers:
                worker.end(max(end - time.monotonic(), 0.0))
        finally:
            for worker in self._workers:
                worker.kill()
            self.app.close()
