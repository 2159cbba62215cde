"""Worker processes in a test's hands: real ones, with real signals, that are always ended with their test."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import dibs
from conftest import wait_for
from databases import Database
from dibs.bindings.binding import OwnConnection
from dibs.jobs import JobRecord
from dibs.ops import Execute
from worker.program import Program

P = TypeVar("P", bound=Program)

SOURCES = [str(Path(dibs.__file__).parent.parent), str(Path(__file__).parent.parent)]

#: A lease (seconds) as short as can be, so that a test may wait for it to run out.
LEASE = 1.0


class WorkerProcess:
    """One worker in a process group of its own. What it logs goes to a file."""

    def __init__(self, argument: str, log: Path) -> None:
        self._log = log
        leash, held = os.pipe()
        self._leash: int | None = held  # closed when the tests end, however they do; then it is killed
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker.program", argument, str(leash)],
                pass_fds=[leash],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        os.close(leash)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        """Return what it has logged until now."""
        return self._log.read_text(errors="replace")

    def lines(self, *words: str) -> list[str]:
        """Return the lines of its log that have all of these words in them."""
        return [line for line in self.log().splitlines() if all(word in line for word in words)]

    def complaints(self) -> list[str]:
        """Return all that it logged above INFO, or printed."""
        return [line for line in self.log().splitlines() if not line.startswith(("INFO ", "DEBUG "))]

    def works(self) -> bool:
        """Has it begun to work?"""
        dead = not self.alive
        if self.lines("INFO", "works on"):
            return True  # and may be gone already, if it met a job that kills it
        assert not dead, f"it ended with {self._process.returncode}:\n{self.log()}"
        return False

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> float:
        """Kill it (-9), wait until it is gone and return when that was, by the monotonic clock."""
        self.signal(signal.SIGKILL)
        self._process.wait(10)
        return time.monotonic()

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def stands_still(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat")
        if stat.exists():
            return stat.read_text().rpartition(")")[2].split()[0] == "T"
        state = subprocess.run(["ps", "-o", "state=", "-p", str(self.pid)], capture_output=True, text=True, check=True)
        return state.stdout.strip().startswith("T")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def wait(self, within: float = 20.0) -> int:
        """Return its exit code, once it has ended."""
        try:
            return self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {within:g} s:\n{self.log()}") from None

    def end(self) -> None:
        if self.alive:  # only as long as it is not reaped is the number surely its own
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(10)
        if self._leash is not None:
            os.close(self._leash)
            self._leash = None


class Site(Generic[P]):
    """One database, a program, and the worker processes that run it."""

    def __init__(self, db: Database, folder: Path, kind: type[P], **settings: Any) -> None:
        self.db = db
        self.program = kind(db.url, folder, **settings)
        self.app = self.program.app
        self.diary = self.program.diary
        self.workers: list[WorkerProcess] = []
        self._kind = f"{kind.__module__}:{kind.__qualname__}"
        self._folder = folder
        self._settings = settings

    # -- workers -----------------------------------------------------------------------------------

    def launch(self, **settings: Any) -> WorkerProcess:
        """Start a worker process; it may be some time until it works."""
        argument = {
            "program": self._kind,
            "url": self.db.url,
            "folder": str(self._folder),
            "app": self._settings,
            "worker": {"lease": LEASE, **settings},
        }
        worker = WorkerProcess(json.dumps(argument), self._folder / f"{self._kind}-{len(self.workers)}.log")
        self.workers.append(worker)
        return worker

    def start(self, **settings: Any) -> WorkerProcess:
        """Start a worker process and wait until it works."""
        return self.start_many(1, **settings)[0]

    def start_many(self, number: int, **settings: Any) -> list[WorkerProcess]:
        """Start worker processes at the same time and wait until all of them work."""
        workers = [self.launch(**settings) for _ in range(number)]
        for worker in workers:
            wait_for(worker.works, within=30, what="a worker to begin")
        return workers

    def logs(self) -> str:
        return "\n".join(worker.log() for worker in self.workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.end()
            print(f"-- worker {worker.pid} --\n{worker.log()[-4000:]}")  # shown if the test failed
        self.app.close()

    # -- jobs --------------------------------------------------------------------------------------

    def open(self, gate: str, *, only_for: WorkerProcess | None = None) -> None:
        """Let the tasks that wait for this gate go on: all of them, or those of one worker."""
        (self._folder / (f"{gate} for {only_for.pid}" if only_for else gate)).touch()

    def job(self, job_id: int) -> JobRecord:
        return self.app.job(job_id)

    def jobs(self, job_ids: Iterable[int]) -> list[JobRecord]:
        """Return these jobs in their order; without their numbers of duplicates."""
        found = {job.id: job for job in self.app.jobs(limit=100_000)}
        return [found[job_id] for job_id in job_ids]

    def statuses(self) -> dict[int, str]:
        return dict(self.db.fetch("SELECT id, status FROM dibs_jobs"))

    def running(self) -> set[int]:
        """Return the jobs that the database says are claimed."""
        return {job_id for job_id, status in self.statuses().items() if status == "running"}

    def held(self) -> set[int]:
        """Return the jobs that are claimed and have not begun."""
        return {
            row[0] for row in self.db.fetch("SELECT id FROM dibs_jobs WHERE status = 'running' AND started_at IS NULL")
        }

    def wait_started(self, *job_ids: int, within: float = 20.0) -> None:
        """Wait until the tasks of all these jobs have begun."""
        wait_for(lambda: set(job_ids) <= set(self.diary.starts()), within=within, what=f"the start of {job_ids}")

    def wait_ended(self, job_ids: Iterable[int] | int, *, within: float = 20.0) -> list[JobRecord]:
        """Wait until all these jobs are done, failed or cancelled, and return them."""
        ids = [job_ids] if isinstance(job_ids, int) else list(job_ids)

        def ended() -> bool:
            statuses = self.statuses()
            return all(statuses.get(job_id) in ("done", "failed", "cancelled") for job_id in ids)

        wait_for(ended, within=within, every=0.05, what="the jobs to end")
        return self.jobs(ids)

    def learn_that_notes_are_quick(self) -> None:
        """Let each worker run some short jobs, so that it claims ahead."""
        number = 30 * max(len(self.workers), 1)
        jobs = self.app.enqueue_many(self.program.note.call(number=n) for n in range(number))
        self.wait_ended([job.id for job in jobs])

    def freeze(self, worker: WorkerProcess) -> None:
        """Freeze a worker while it writes nothing: where there is one writer at a time, it would stop all others."""
        with self.transaction():
            worker.freeze()
            wait_for(worker.stands_still, what="it to stand still")

    def start_one_and_hold_five(self) -> tuple[int, list[int], str]:
        """Have the only worker that is not busy, which has one slot, run one job and claim five more ahead. Return
        their ids, and the gate that the one waits for."""
        for number in range(10):
            self.learn_that_notes_are_quick()
            gate = f"gate {number}"
            calls = [self.program.gate.call(gate), *(self.program.note.call(number=n) for n in range(5))]
            started, *held = (job.id for job in self.app.enqueue_many(calls))
            self.wait_started(started)
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                if set(held) <= self.held():
                    return started, held, gate
            self.open(gate)  # on a busy machine nothing is quick
            self.wait_ended([started, *held])
        raise AssertionError("no five jobs were claimed ahead")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[OwnConnection]:
        """Hold a transaction of somebody's open, then undo it."""
        connection = self.db.connect()
        try:
            connection.begin()
            yield connection
            connection.rollback()
        finally:
            connection.close()

    @contextlib.contextmanager
    def locked(self, *job_ids: int) -> Iterator[None]:
        """Lock rows of jobs, as a transaction of a user's does that changes something in them."""
        with self.transaction() as connection:
            for job_id in job_ids:
                connection.answer(Execute("UPDATE dibs_jobs SET retention = 12345 WHERE id = :id", {"id": job_id}))
            yield


def holds(condition: Callable[[], bool], *, during: float, every: float = 0.05) -> None:
    """Look again and again for so many seconds; fail as soon as the condition does not hold."""
    end = time.monotonic() + during
    while time.monotonic() < end:
        assert condition()
        time.sleep(every)
