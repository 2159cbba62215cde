"""A worker with a backlog: it claims ahead, and neither spins nor leaves a job behind for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from conftest import wait_for
from databases import Database
from dibs import Dibs
from dibs.worker.fetcher import Fetcher
from dibs.worker.worker import Worker


@contextmanager
def working(app: Dibs) -> Iterator[Worker]:
    """Let a worker with four slots work in a thread."""
    worker = app.worker(concurrency=4)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(30)


def test_what_crashed_does_not_wait_for_the_end_of_a_backlog(db: Database) -> None:
    """A job whose lease once ran out is begun soon when its turn has come, although slots are never free for long."""
    app = db.app()
    crashed_ran = threading.Event()
    others = []

    @app.task
    def work(number: int) -> None:
        time.sleep(0.01)
        others.append(number)

    @app.task
    def crashed() -> None:
        crashed_ran.set()

    app.enqueue_many(work.call(number) for number in range(4_000))
    with working(app):
        wait_for(lambda: len(others) > 200, what="claims ahead")
        job = crashed.using(priority=1, delay=3600).enqueue()
        db.execute("UPDATE dibs_jobs SET crashes = 1, run_at = created_at WHERE id = :id", id=job.id)
        assert crashed_ran.wait(5)
        assert len(others) < 3_000
    app.close()


def test_no_spinning(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the slots have enough to do, the fetcher looks again when a job ends, not over and over."""
    app = db.app()
    done = []
    steps = []
    step: Callable[[Fetcher], bool] = Fetcher._step

    def counted(fetcher: Fetcher) -> bool:
        steps.append(fetcher)
        return step(fetcher)

    monkeypatch.setattr(Fetcher, "_step", counted)

    @app.task
    def work(number: int) -> None:
        time.sleep(0.02)
        done.append(number)

    app.enqueue_many(work.call(number) for number in range(300))
    with working(app):
        wait_for(lambda: len(done) == 300, what="the jobs")
    assert len(steps) < 5 * len(done) + 100
    app.close()
