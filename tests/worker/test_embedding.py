"""A worker inside another program: in a thread, without signal handlers, leaving nothing behind; and forks."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands import environment
from conftest import wait_for
from databases import Database
from dibs import Dibs
from dibs.errors import DibsError, InvalidArgument, SchemaError
from dibs.worker.worker import Worker
from worker.harness import Site
from worker.program import Program

HANDLERS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD]


@contextmanager
def running(app: Dibs) -> Iterator[Worker]:
    """Run a worker in a thread of this process; stop it from this one at the end."""
    worker = app.worker(lease=2.0, concurrency=2)
    thread = threading.Thread(target=worker.run, name="embedding")
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(10)
    assert not thread.is_alive()


def names_of_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def test_a_worker_in_a_thread(site: Site[Program]) -> None:
    """It runs in any thread, is stopped from any other, touches no signal handler, and when it has stopped there are
    no threads and no connections of it left. Then there may be another one."""
    handlers = [signal.getsignal(number) for number in HANDLERS]
    threads = names_of_threads()
    for number in range(2):
        with running(site.app):
            jobs = [site.program.note.enqueue(number=number), site.program.anote.enqueue(number=number)]
            assert [job.join(timeout=10) for job in jobs] == [number, number]
            assert [signal.getsignal(each) for each in HANDLERS] == handlers
            assert "dibs-fetcher" in names_of_threads()
        assert names_of_threads() == threads
        wait_for(lambda: connections(site) == 0, within=2, what="the server to notice that they are closed")


def connections(site: Site[Program]) -> int:
    """Return how many connections the workers of this process have to the server, where it can say."""
    if site.db.kind == "postgres":
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dibs _%'"
        return int(site.db.fetch(asked)[0][0])
    return 0


def test_a_thread_that_can_not_be_stopped(site: Site[Program]) -> None:
    """`run()` returns although a task's code goes on; its job is released."""
    worker = site.app.worker(lease=2.0, grace=0.2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    job = site.program.gate.enqueue("end")
    site.wait_started(job.id)
    worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert (site.job(job.id).status, site.job(job.id).attempts) == ("ready", 0)
    site.open("end")
    wait_for(lambda: not any(name.startswith("dibs-") for name in names_of_threads()), within=5)


def test_a_worker_that_is_stopped_before_it_runs(site: Site[Program]) -> None:
    """`stop()` may come first: then `run()` returns at once."""
    worker = site.app.worker()
    worker.stop()
    job = site.program.note.enqueue()
    worker.run()
    assert site.job(job.id).claims == 0


def test_signals_need_the_main_thread(site: Site[Program]) -> None:
    """`run(signals=True)` elsewhere is an error of the caller's, raised as one."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            site.app.worker().run(signals=True)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert [type(error) for error in errors] == [ValueError]
    with pytest.raises(InvalidArgument):
        site.app.worker(lease=0.5)


def test_an_app_that_is_forked(site: Site[Program]) -> None:
    """Both processes go on with an app that was used before the fork, each on connections of its own."""
    before = site.program.note.enqueue(number=1)
    assert site.job(before.id).status == "ready"
    worker = site.app.worker(burst=True, lease=2.0)  # of each process that runs it the name is another
    connections = site.app.store.connections

    def child() -> None:
        logging.disable()
        site.app.close()  # closes nothing that is the parent's
        job = site.program.note.enqueue(number=2)
        worker.run()
        named = f":{os.getpid()}:" in worker.name
        raise SystemExit(0 if named and job.join(timeout=10) == 2 else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    again = [site.program.note.enqueue(number=number).id for number in range(20)]
    process.join(20)
    assert process.exitcode == 0
    # One that must not be open at a fork is closed before, and opened anew; all others the parent goes on with.
    assert site.app.store.connections == connections + (site.db.kind == "sqlite")
    assert site.job(before.id).status == "done"
    site.start()
    assert {(job.status, job.attempts) for job in site.wait_ended(again)} == {("done", 1)}


#: Starts a worker and ends while a job runs.
FORGETFUL = """
import time
from pathlib import Path
from dibs import Dibs

app = Dibs()

@app.task(name="slow")
def slow() -> None:
    Path("running").touch()
    time.sleep(0.5)

if __name__ == "__main__":
    app.worker().start()
    slow.enqueue()
    while not Path("running").exists():
        time.sleep(0.01)
"""


def test_a_program_that_ends_without_stopping_its_worker(tmp_path: Path) -> None:
    """What was started with `start()` is stopped when the process ends: what runs may end, and nothing is left."""
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    ran = subprocess.run(
        [sys.executable, "forgetful.py"], cwd=tmp_path, env=environment(url), capture_output=True, text=True, timeout=30
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert Database("any", url).fetch("SELECT status, attempts FROM dibs_jobs") == [("done", 1)]


def test_a_worker_that_fails_inside_another_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged, its health says so while the program goes on, and `join()`, as the end of `with`, raises it."""
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    app = Dibs(url)
    app.task(name="t")(lambda: None).enqueue()
    Database("any", url).execute("UPDATE dibs_meta SET value = '999' WHERE name = 'oldest_code'")
    app.close()
    worker = app.worker()
    worker.start()
    wait_for(lambda: not worker.health.live().ok, within=10, what="it to fail")
    assert "has ended with an error" in worker.health.ready().reason
    with pytest.raises(SchemaError):
        worker.join()
    assert any("has ended with an error" in message for message in caplog.messages)
    with pytest.raises(DibsError, match="started already"):
        worker.start()


def test_a_file_that_two_processes_have_after_a_fork(tmp_path: Path) -> None:
    """A connection that was open in the parent is none of the child's: what the parent then closes takes nothing away
    from what the child writes. (A library that keeps locks by the process would take the parent's for the child's own.)"""
    url = f"sqlite:///{tmp_path / 'dibs.db'}"
    app = Dibs(url)
    task = app.task(name="t")(lambda: None)
    task.enqueue()

    def child() -> None:
        task.enqueue()
        (tmp_path / "child has written").touch()
        wait_for((tmp_path / "parent has closed").exists)
        task.enqueue()
        os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    wait_for((tmp_path / "child has written").exists)
    app.close()
    (tmp_path / "parent has closed").touch()
    process.join(20)
    assert Database("any", url).fetch("SELECT count(*) FROM dibs_jobs") == [(3,)]


def test_forks_while_threads_write(tmp_path: Path) -> None:
    """A process that forks while its threads and its worker are in the middle of writing gets children that can write."""
    app = Dibs(f"sqlite:///{tmp_path / 'dibs.db'}")
    task = app.task(name="t")(lambda: None)
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.005):
            task.enqueue()

    def child() -> None:
        logging.disable()
        jobs = [task.enqueue() for _ in range(2)]
        os._exit(0 if all(app.job(job.id).task == "t" for job in jobs) else 1)

    threads = [threading.Thread(target=write) for _ in range(2)]
    with app.worker(lease=2.0, concurrency=2) as worker:
        wait_for(lambda: worker.health.ready().ok, what="the worker to work")
        for thread in threads:
            thread.start()
        children = [multiprocessing.get_context("fork").Process(target=child) for _ in range(4)]
        try:
            for process in children:
                process.start()
            for process in children:
                process.join(30)
        finally:
            stop.set()
            for process in children:
                process.kill()
    assert [process.exitcode for process in children] == [0] * len(children)
    app.close()
