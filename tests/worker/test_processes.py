"""Tasks that run in processes of the worker's: whom they hold up, how they are ended, and how they end themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import wait_for
from databases import Database
from dibs import ConfigurationError, Dibs
from dibs.worker.places import hello_for
from worker.harness import LEASE, SOURCES, Site
from worker.long_program import LongProgram


@pytest.fixture
def site(db: Database, tmp_path: Path) -> Iterator[Site[LongProgram]]:
    with Site(db, tmp_path, LongProgram) as site:
        yield site


@pytest.fixture
def one_site(sqlite: Database, tmp_path: Path) -> Iterator[Site[LongProgram]]:
    """On SQLite alone: what is tested takes place in processes and asks no database for anything of its own."""
    with Site(sqlite, tmp_path, LongProgram) as site:
        yield site


def is_there(pid: int) -> bool:
    """Does a process run? (One that has died and that nobody has waited for does not.)"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(site: Site[LongProgram], job_id: int) -> int:
    """Return the process in which a job was started last."""
    return site.diary.entries("start", job=job_id)[-1].pid


# -- running -----------------------------------------------------------------------------------------


def test_arguments_and_results(site: Site[LongProgram]) -> None:
    """They cross over by the task's signature, sync and async; a process runs one job after the other."""
    worker = site.start(concurrency=1)
    jobs = [site.program.pnote.enqueue(number=n, when=timedelta(hours=n)) for n in range(20)]
    others = [site.program.apnote.enqueue(number=n) for n in range(20)]
    assert [job.join(timeout=20) for job in jobs] == [(n, timedelta(hours=n)) for n in range(20)]
    assert [job.join(timeout=20) for job in others] == list(range(20))
    pids = site.diary.pids()
    assert len(pids) == 1
    assert worker.pid not in pids
    assert worker.complaints() == []


def test_a_process_opens_no_connection(one_site: Site[LongProgram]) -> None:
    """What a process of the worker's has open is its own: no database, nothing of the worker's but two lines to it."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell what is open")
    one_site.start()
    opened = one_site.program.files.enqueue().join(timeout=20)
    assert not [name for name in opened if "dibs.db" in name]


def test_a_task_that_settles_its_own_job(one_site: Site[LongProgram]) -> None:
    """`finish()` works on a connection that the task has opened in its process."""
    worker = one_site.start()
    (job,) = one_site.wait_ended(one_site.program.finishes.enqueue().id)
    assert (job.status, job.result) == ("done", "by itself")
    assert one_site.program.pnote.enqueue(number=1).join(timeout=10)
    assert worker.complaints() == []


def test_a_busy_process_holds_nobody_up(site: Site[LongProgram]) -> None:
    """A task that holds its GIL all the time: leases are renewed, and other tasks run, as if it were not there."""
    site.start(concurrency=2)
    job = site.program.spin.enqueue("end")
    site.wait_started(job.id)
    began = time.monotonic()
    leases = {site.job(job.id).lease_until}
    while time.monotonic() < began + 2.5 * LEASE:
        assert site.program.note.enqueue(number=4).join(timeout=2) == 4
        leases.add(site.job(job.id).lease_until)
    assert len(leases) >= 5, "it is renewed every third of a lease"
    site.open("end")
    assert job.join(timeout=20) == pid_of(site, job.id)
    (ended,) = site.jobs([job.id])
    assert (ended.status, ended.attempts, ended.claims) == ("done", 1, 1)


def test_log_records(one_site: Site[LongProgram]) -> None:
    """What a task logs in a process is logged by its worker, as it logs its own."""
    worker = one_site.start()
    one_site.wait_ended(one_site.program.logs.enqueue().id)
    assert worker.lines("WARNING said in a process")


# -- exceptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "status", "attempts", "last_line"),
    [
        ("retry", "ready", 1, "dibs.errors.Retry: not yet"),
        ("release", "ready", 0, None),
        ("cancel", "cancelled", 1, "no use"),
        ("fail", "failed", 1, "dibs.errors.Fail: hopeless"),
        ("fail_on", "failed", 1, "worker.long_program.Oops: a class of its own"),
        ("else", "ready", 1, "KeyError: 'else'"),
        ("exit", "ready", 1, "SystemExit: 7"),
    ],
)
def test_what_a_task_raises(
    one_site: Site[LongProgram], what: str, status: str, attempts: int, last_line: str | None
) -> None:
    """Signals with their delays, classes that are known only over there, and any other exception mean the same as in
    a thread; the error's text begins with the task's own frame."""
    site = one_site
    site.start(concurrency=1)
    job_id = site.program.raises.enqueue(what).id
    wait_for(lambda: site.job(job_id).claims == 1 and site.job(job_id).status != "running", what="it to be settled")
    job = site.job(job_id)
    assert (job.status, job.attempts) == (status, attempts)
    if what in ("retry", "release"):
        assert timedelta(minutes=59) < job.run_at - job.created_at < timedelta(minutes=61)
    if last_line is None:
        assert job.error is None
    else:
        lines = (job.error or "").splitlines()
        assert lines[-1] == last_line
        assert len(lines) == 1 or ("Traceback" in lines[0] and "long_program" in lines[1])
    assert site.program.pnote.enqueue(number=1).join(timeout=10)
    assert len(site.diary.pids()) == 1, "the process goes on"


def test_what_an_async_task_raises(one_site: Site[LongProgram]) -> None:
    """Its error's text, too, begins with its own frame."""
    one_site.start()
    (job,) = one_site.wait_ended(one_site.program.araises.enqueue().id)
    lines = (job.error or "").splitlines()
    assert lines[-1] == "KeyError: 'deep'"
    assert "long_program" in lines[1]


# -- ends that nobody asked for ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (str(int(signal.SIGSEGV)), "its process ended with signal 11 (SIGSEGV)"),
        (str(int(signal.SIGKILL)), "its process ended with signal 9 (SIGKILL: out of memory?)"),
        ("exit", "its process ended with exit code 3"),
    ],
)
def test_a_task_that_ends_its_process(site: Site[LongProgram], how: str, told: str) -> None:
    """It has failed an attempt, like any other, with the reason; the worker and its other jobs go on."""
    worker = site.start(concurrency=1)
    job_id = site.program.dies.enqueue(how).id
    wait_for(lambda: site.job(job_id).error, what="the first attempt to fail")
    job = site.job(job_id)
    assert (job.status, job.attempts, job.crashes) == ("ready", 1, 0)
    assert job.error == f"{told} (attempt 1 of 2)"
    assert (job.run_at - job.created_at).total_seconds() > 1.5, "after its backoff"
    assert site.program.pnote.enqueue(number=5).join(timeout=10)
    (ended,) = site.wait_ended(job_id)
    assert (ended.status, ended.attempts, ended.result) == ("done", 2, "came through")
    assert worker.alive


def test_a_worker_that_is_killed_leaves_nothing_behind(one_site: Site[LongProgram]) -> None:
    """Its processes are gone with it (-9): idle ones, those that hold their GIL for an hour, and the programs that
    tasks have started."""
    site = one_site
    worker = site.start(concurrency=3)
    idle = site.program.pnote.enqueue(number=1)
    deaf, another = site.program.deaf.enqueue(), site.program.starts_another.enqueue()
    site.wait_started(idle.id, deaf.id, another.id)
    program = int(wait_for(lambda: site.diary.entries("another"), what="the other program")[0].detail)
    pids = {*site.diary.pids(), program}
    assert all(is_there(pid) for pid in pids)
    worker.kill()
    wait_for(lambda: not any(is_there(pid) for pid in pids), within=5, what="the processes to end")


def test_a_worker_that_stops_leaves_nothing_behind(one_site: Site[LongProgram]) -> None:
    """The same for one that is stopped, after its time of grace; it leaves with 0."""
    site = one_site
    worker = site.start(concurrency=3, grace=0.5)
    deaf, another = site.program.deaf.enqueue(), site.program.starts_another.enqueue()
    site.wait_started(deaf.id, another.id)
    program = int(wait_for(lambda: site.diary.entries("another"), what="the other program")[0].detail)
    pids = {*site.diary.pids(), program}
    worker.terminate()
    assert worker.wait(10) == 0
    wait_for(lambda: not any(is_there(pid) for pid in pids), within=2, what="the processes to end")
    assert {(job.status, job.attempts, job.crashes) for job in site.jobs([deaf.id, another.id])} == {("ready", 0, 0)}
    assert site.diary.entries("raised", job=another.id)[0].detail == "Release", "it was told first"


def test_a_signal_to_all_of_them(one_site: Site[LongProgram]) -> None:
    """A SIGTERM to the worker and to its processes, as from systemd: what runs may end within the grace."""
    site = one_site
    worker = site.start(concurrency=2)
    job = site.program.spin.enqueue("end")
    site.wait_started(job.id)
    for pid in (worker.pid, pid_of(site, job.id)):
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: worker.lines("INFO") and is_there(pid_of(site, job.id)), what="it to go on")
    site.open("end")
    assert worker.wait(10) == 0
    assert site.job(job.id).status == "done"


# -- ends that somebody asked for ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sleepy", "asleepy"])
def test_out_of_time(site: Site[LongProgram], kind: str) -> None:
    """Code whose time is up is ended, and may clean up; the process goes on with other jobs."""
    site.start(concurrency=1)
    (job,) = site.wait_ended(getattr(site.program, kind).enqueue().id)
    assert (job.status, job.attempts, job.error) == ("failed", 1, "timed out after 0.5 s (attempt 1 of 1)")
    (raised,) = site.diary.entries("raised")
    assert raised.detail == {"sleepy": "TimeoutError", "asleepy": "CancelledError"}[kind]
    assert site.program.pnote.enqueue(number=1).join(timeout=10)
    assert len(site.diary.pids()) == 1


@pytest.mark.parametrize("kind", ["stubborn", "blocking"])
def test_out_of_time_and_deaf_to_it(one_site: Site[LongProgram], kind: str) -> None:
    """Code that does not end when it is told to is killed a little later, with its process; another one takes the
    next job."""
    site = one_site
    worker = site.start(concurrency=1)
    (job,) = site.wait_ended(getattr(site.program, kind).enqueue().id)
    assert (job.status, job.attempts, job.error) == ("failed", 1, "timed out after 0.5 s (attempt 1 of 1)")
    assert not is_there(pid_of(site, job.id))
    assert len(worker.lines("WARNING", "its process is killed")) == 1
    assert site.program.pnote.enqueue(number=1).join(timeout=10)
    assert len(site.diary.pids()) == 2


def test_a_person_cancels(site: Site[LongProgram]) -> None:
    """Code in a process is ended by it: told first, killed if it does not listen."""
    site.start(concurrency=2)
    told, deaf = site.program.starts_another.enqueue(), site.program.deaf.enqueue()
    site.wait_started(told.id, deaf.id)
    assert site.app.cancel([told.id, deaf.id]) == [told.id, deaf.id]
    jobs = site.wait_ended([told.id, deaf.id], within=15)
    assert {(job.status, job.error) for job in jobs} == {("cancelled", "cancelled while it ran")}
    assert [entry.detail for entry in site.diary.entries("raised", job=told.id)] == ["Cancel"]
    assert not is_there(pid_of(site, deaf.id))


def test_a_lost_claim(site: Site[LongProgram]) -> None:
    """Code in a process whose worker stood still for longer than its lease: it learns by itself that the claim may be
    lost, and is ended when the worker is back; the other worker's run counts."""
    zombie = site.start(concurrency=1)
    job = site.program.watches["process"].enqueue("end")
    site.wait_started(job.id)
    site.freeze(zombie)
    wait_for(lambda: site.diary.entries("lost"), within=3 * LEASE, what="the code to learn of it")
    other = site.start(concurrency=1)
    wait_for(lambda: len(site.diary.entries("start")) == 2, within=2 * LEASE + 5, what="another worker to run the job")
    zombie.thaw()
    wait_for(lambda: site.diary.entries("raised"), within=5, what="the zombie's code to be ended")
    assert site.diary.entries("raised")[0].claims == 1
    site.open("end")
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.claims, ended.attempts) == ("done", 2, 2)
    assert zombie.alive
    assert other.alive


# -- where a process finds the app -----------------------------------------------------------------------

SCRIPT = """
import os, sys
from dibs import Dibs
app = Dibs(sys.argv[1])
@app.task(runs_in="process")
def where(number: int) -> list:
    return [number, os.getpid(), __name__]
{guard}
    if "URL" not in os.environ:
        os.environ["URL"] = sys.argv[1]
        job = where.enqueue(1)
    app.worker(burst=True).run()
    record = app.job(job.id)
    print(record.status, record.task, record.result != [1, os.getpid(), "__main__"], record.error)
"""


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "hello.py"
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCES)}
    return subprocess.run(
        [sys.executable, str(script), f"sqlite:///{folder / 'own.db'}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_tasks_of_the_program_itself(tmp_path: Path) -> None:
    """A program of one file, with tasks and a worker in it, works: the process imports it under another name."""
    ran = run_script(tmp_path, SCRIPT.format(guard='if __name__ == "__main__":'))
    assert ran.stdout == "done hello.where True None\n", ran.stderr


def test_a_program_that_starts_a_worker_when_imported(tmp_path: Path) -> None:
    """It is told what to do about it, in the job's error."""
    text = SCRIPT.format(guard="if True:").replace('runs_in="process"', 'runs_in="process", max_attempts=1')
    ran = run_script(tmp_path, text)
    assert ran.stdout.startswith("failed hello.where True its process could not start"), ran.stderr
    assert 'start it under `if __name__ == "__main__":`' in ran.stdout


def test_an_app_in_no_variable(tmp_path: Path) -> None:
    """A worker for tasks in processes does not start where a process could not find the app, and says what helps."""
    app = Dibs(f"sqlite:///{tmp_path / 'own.db'}")
    app.task(name="t", runs_in="process")(os.getcwd)
    with pytest.raises(ConfigurationError, match=r"app\.place"):
        app.worker()
    app.place = "myapp.jobs:make_app"
    app.worker()
    assert hello_for(app, "w").place == "myapp.jobs:make_app"
