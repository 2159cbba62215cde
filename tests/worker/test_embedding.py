"""A worker inside another program: in a thread, without signal handlers, leaving nothing behind; and forks."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import wait_for
from dibs import Dibs
from dibs.errors import InvalidArgument
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

    def child() -> None:
        logging.disable()
        job = site.program.note.enqueue(number=2)
        site.app.worker(burst=True, lease=2.0).run()
        raise SystemExit(0 if job.join(timeout=10) == 2 else 1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    again = [site.program.note.enqueue(number=number).id for number in range(20)]
    process.join(20)
    assert process.exitcode == 0
    assert site.job(before.id).status == "done"
    site.start()
    assert {(job.status, job.attempts) for job in site.wait_ended(again)} == {("done", 1)}
