"""`dibs worker` as real processes with real signals, alone and under a supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import JOBS, environment, write_jobs
from conftest import wait_for
from databases import Database

TERM, INT = signal.SIGTERM, signal.SIGINT

#: Tells the file descriptor in the last argument when the handlers of the first moment are set.
TELL_WHEN_SIGNALS_ARE_HEEDED = """
import _signal, os, sys
file, heed, set_so_far = int(sys.argv.pop()), _signal.signal, []
def signal(number, handler):
    before = heed(number, handler)
    set_so_far.append(number)
    if len(set_so_far) == 2:
        os.write(file, b"!")
    return before
_signal.signal = signal
from dibs.__main__ import main
main()
"""

#: A task that leaves a thread behind which nobody can end.
STUCK = """
import asyncio, time
from pathlib import Path
from dibs import Dibs

app = Dibs()

@app.task(name="stuck")
async def stuck(folder: str) -> None:
    Path(folder, "running").touch()
    await asyncio.to_thread(time.sleep, 60)
"""


class Started:
    """A `dibs worker` process. What it says goes to a file."""

    def __init__(self, folder: Path, arguments: list[str], *, url: str, code: str | None = None) -> None:
        self._log = folder / "log"
        program = ["-m", "dibs"] if code is None else ["-c", code]
        self._heeds, told = os.pipe()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, "worker", *arguments, *([] if code is None else [str(told)])],
                cwd=folder,
                env=environment(url),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[told],
                start_new_session=True,
            )
        os.close(told)

    def wait_until_signals_are_heeded(self) -> None:
        assert os.read(self._heeds, 1) == b"!", self.log()

    def log(self) -> str:
        return self._log.read_text()

    def pids(self, words: str) -> list[int]:
        """Return the numbers of processes in the lines that say so."""
        return [int(pid) for pid in re.findall(words, self.log())]

    def workers(self) -> list[int]:
        """Return the processes that have begun to work."""
        return self.pids(r"worker \S+?:(\d+):\S+ works on")

    def wait_for_workers(self, number: int) -> list[int]:
        wait_for(lambda: len(self.workers()) >= number or self.process.poll() is not None, what="workers")
        assert self.process.poll() is None, self.log()
        return self.workers()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = 15.0) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {within:g} s:\n{self.log()}") from None

    def end(self) -> None:
        for pid in [self.process.pid, *self.pids(r"worker process (\d+) has started")]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        os.close(self._heeds)


class Place:
    """A folder with jobs, a database, and the processes started there."""

    def __init__(self, folder: Path, url: str, source: str = JOBS) -> None:
        self.folder = folder
        self.database = Database("any", url)
        self.app = self.database.app()
        self.module = write_jobs(folder, source)
        self.started: list[Started] = []

    def start(self, *options: str, code: str | None = None) -> Started:
        started = Started(self.folder, [self.module, *options], url=self.database.url, code=code)
        self.started.append(started)
        return started

    def enqueue(self, task: str) -> int:
        """Enqueue a job of `gate` or `stuck`."""
        call = self.app.task(name=task)(lambda folder: None) if task not in self.app.tasks else self.app.tasks[task]
        return int(call.enqueue(folder=str(self.folder)).id)

    def wait_until_it_runs(self) -> None:
        wait_for((self.folder / "running").exists, what="the job to run")

    def let_it_end(self) -> None:
        (self.folder / "go on").touch()

    def statuses(self) -> set[tuple[str, int]]:
        return {(job.status, job.attempts) for job in self.app.jobs()}


@contextlib.contextmanager
def place_on(folder: Path, url: str, source: str = JOBS) -> Iterator[Place]:
    place = Place(folder, url, source)
    try:
        yield place
    finally:
        for started in place.started:
            started.end()
        place.app.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place where the kind of database does not matter."""
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}") as place:
        place.app.counts()  # makes the file, so that nobody waits for it
        yield place


@pytest.fixture
def place_on_each(db: Database, tmp_path: Path) -> Iterator[Place]:
    """A place on each database."""
    with place_on(tmp_path, db.url) as place:
        yield place


def gone(pid: int) -> bool:
    """Is there no such process, or only what is left of it until somebody asks?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


# -- one process -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [TERM, INT])
def test_signal_at_any_moment(place: Place, number: signal.Signals) -> None:
    """From the first moment on a worker that is told to stop leaves with 0, and no job is left in its hands."""
    place.enqueue("gate")
    place.let_it_end()
    for milliseconds in (0, 3, 10, 30, 60, 90, 120, 160, 200, 300):
        worker = place.start(code=TELL_WHEN_SIGNALS_ARE_HEEDED)
        worker.wait_until_signals_are_heeded()
        time.sleep(milliseconds / 1000)
        worker.signal(number)
        assert worker.wait() == 0, f"after {milliseconds} ms: {worker.log()}"
        assert "Traceback" not in worker.log()
        assert place.statuses() <= {("ready", 0), ("done", 1)}


def test_signal_before_the_first_moment(place: Place) -> None:
    """While the interpreter itself starts, a signal may end the process; no job is claimed."""
    place.enqueue("gate")
    for _ in range(3):
        worker = place.start()
        worker.signal(TERM)
        assert worker.wait() in (0, -TERM)
        assert place.statuses() == {("ready", 0)}


def test_job_that_runs_is_finished(place_on_each: Place) -> None:
    """A worker that is told to stop finishes the job that runs, and leaves with 0."""
    job_id = place_on_each.enqueue("gate")
    worker = place_on_each.start()
    place_on_each.wait_until_it_runs()
    worker.signal(TERM)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.2)
    place_on_each.let_it_end()
    assert worker.wait() == 0, worker.log()
    job = place_on_each.app.job(job_id)
    assert (job.status, job.result, job.attempts) == ("done", 7, 1)


def test_second_signal(place: Place) -> None:
    """Who asks twice means it: the worker leaves at once, and not with 0."""
    place.enqueue("gate")
    worker = place.start()
    place.wait_until_it_runs()
    worker.signal(TERM)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(0.6)
    worker.signal(INT)
    assert worker.wait(3) == 1


def test_thread_that_nobody_ends(tmp_path: Path) -> None:
    """A thread that a job left behind does not keep a worker that was told to stop from ending."""
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}", STUCK) as place:
        place.enqueue("stuck")
        worker = place.start("--grace", "0.1")
        place.wait_until_it_runs()
        worker.signal(TERM)
        assert worker.wait(10) == 0
        assert place.statuses() == {("ready", 0)}


def test_log(place: Place) -> None:
    """Lines on stderr with time and level, from INFO on; more with -v, only what is wrong with --quiet."""
    assert place.start("--burst").wait() == 0
    lines = place.started[-1].log().splitlines()
    assert lines
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO dibs: ", line) for line in lines), lines
    assert place.start("--burst", "--quiet").wait() == 0
    assert place.started[-1].log() == ""
    place.enqueue("gate")
    place.let_it_end()
    assert place.start("--burst", "-v").wait() == 0
    assert "DEBUG dibs: job 1: gate done" in place.started[-1].log()


def test_log_that_the_program_has_set_up(tmp_path: Path) -> None:
    """Where the user's code has set logging up, it stays as it is."""
    source = JOBS + "\nimport logging\nlogging.basicConfig(format='mine: %(message)s')\n"
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}", source) as place:
        worker = place.start("--burst")
        assert worker.wait() == 0
        assert all(line.startswith("mine: worker ") for line in worker.log().splitlines())


def test_server_that_is_down(tmp_path: Path) -> None:
    """A worker waits for a server that is down, says so once and without the password, and can be stopped."""
    with place_on(tmp_path, "postgresql://shop:s3cr3t@127.0.0.1:1/shop") as place:
        worker = place.start()
        wait_for(lambda: "cannot connect to" in worker.log() or worker.process.poll() is not None)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.process.wait(1)
        worker.signal(TERM)
        assert worker.wait() == 0
        assert worker.log().count("cannot connect to") == 1
        assert "s3cr3t" not in worker.log()


# -- several processes -----------------------------------------------------------------------------


def test_process_that_dies_is_replaced(place: Place) -> None:
    """Another process starts where one was killed, and it is said; told to stop, all end and the supervisor leaves
    with 0."""
    supervisor = place.start("--processes", "2")
    first, second = supervisor.wait_for_workers(2)
    os.kill(first, signal.SIGKILL)
    third = supervisor.wait_for_workers(3)[2]
    assert f"worker process {first} died (SIGKILL), another starts in 1 s" in supervisor.log()
    supervisor.signal(TERM)
    assert supervisor.wait() == 0, supervisor.log()
    assert all(gone(pid) for pid in (first, second, third))


@pytest.mark.parametrize("number", [TERM, INT, signal.SIGKILL])
def test_processes_end_with_their_supervisor(place: Place, number: signal.Signals) -> None:
    """Told to stop, or killed: its processes finish what runs, and end."""
    place.enqueue("gate")
    supervisor = place.start("--processes", "2")
    workers = supervisor.wait_for_workers(2)
    place.wait_until_it_runs()
    supervisor.signal(number)
    wait_for(lambda: any(gone(pid) for pid in workers), what="the idle one to end")
    assert not all(gone(pid) for pid in workers)
    place.let_it_end()
    assert supervisor.wait() == (-number if number == signal.SIGKILL else 0)
    wait_for(lambda: all(gone(pid) for pid in workers), what="the busy one to end")
    assert place.statuses() == {("done", 1)}


def test_signal_to_every_process(place: Place) -> None:
    """Where everybody is told to stop, as by systemd, a process is not told twice: what runs is finished."""
    place.enqueue("gate")
    supervisor = place.start("--processes", "1")
    (worker,) = supervisor.wait_for_workers(1)
    place.wait_until_it_runs()
    supervisor.signal(TERM)
    with pytest.raises(subprocess.TimeoutExpired):
        supervisor.process.wait(0.3)
    os.kill(worker, TERM)
    place.let_it_end()
    assert supervisor.wait() == 0, supervisor.log()
    assert place.statuses() == {("done", 1)}


def test_second_signal_to_a_supervisor(place: Place) -> None:
    """Who asks twice means it: the processes are killed, and the supervisor does not leave with 0."""
    place.enqueue("gate")
    supervisor = place.start("--processes", "1")
    (worker,) = supervisor.wait_for_workers(1)
    place.wait_until_it_runs()
    supervisor.signal(TERM)
    with pytest.raises(subprocess.TimeoutExpired):
        supervisor.process.wait(0.6)
    supervisor.signal(TERM)
    assert supervisor.wait(3) == 1
    assert gone(worker)


def test_processes_that_do_not_end_in_time(place: Place) -> None:
    """Who is still there after the grace is released by the process itself, and all leave with 0."""
    place.enqueue("gate")
    supervisor = place.start("--processes", "1", "--grace", "0.2")
    place.wait_until_it_runs()
    supervisor.signal(TERM)
    assert supervisor.wait() == 0, supervisor.log()
    assert place.statuses() == {("ready", 0)}


def test_supervised_burst(place: Place) -> None:
    """In a burst the supervisor ends when all have ended, and starts nobody again."""
    jobs = [place.enqueue("gate") for _ in range(20)]
    place.let_it_end()
    supervisor = place.start("--processes", "2", "--burst")
    assert supervisor.wait() == 0, supervisor.log()
    assert place.app.counts() == {"default": {"done": len(jobs)}}
    assert supervisor.log().count("has started") == 2


@pytest.mark.parametrize("options", [[], ["--burst"]])
def test_supervised_in_vain(place: Place, options: list[str]) -> None:
    """What cannot work is not tried again and again: the supervisor leaves with what its processes left with."""
    supervisor = place.start("--processes", "2", "--lease", "0.1", *options)
    assert supervisor.wait() == 2
    assert supervisor.log().count("has started") == 2
    assert supervisor.log().count("lease: must be between") == 2


def test_signal_while_a_supervisor_starts(place: Place) -> None:
    """A supervisor, too, heeds signals from the first moment on, and leaves nobody behind."""
    for milliseconds in (0, 50, 100, 200):
        supervisor = place.start("--processes", "2", code=TELL_WHEN_SIGNALS_ARE_HEEDED)
        supervisor.wait_until_signals_are_heeded()
        time.sleep(milliseconds / 1000)
        supervisor.signal(TERM)
        assert supervisor.wait() == 0, supervisor.log()
        assert all(gone(pid) for pid in supervisor.pids(r"worker process (\d+) has started"))
