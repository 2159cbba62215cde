"""A deploy under load: old and new code side by side on one schema, until the old workers are stopped one by one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import wait_for
from databases import NAMES, Database
from dibs.checks import check
from worker.deployed_programs import New, Old
from worker.harness import Site

#: One that locks rows and one that does not: what is tested here asks no database for anything else.
ON = [name for name in NAMES if name in ("sqlite", "postgres")]

#: What each version enqueues while both run, of each of its tasks.
WHILE_BOTH_RUN = 60


class Producer:
    """Enqueues each call of a program in turn, in a thread, until it is told to stop."""

    def __init__(self, program: Old | New) -> None:
        self.jobs: list[int] = []
        self.error: BaseException | None = None
        self._program = program
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        number = 0
        try:
            while not self._stopping.wait(0.01):
                self.jobs += [
                    job.id for job in self._program.app.enqueue_many(call(number) for call in self._program.calls)
                ]
                number += 1
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)
        assert self.error is None


@pytest.fixture(params=ON)
def db(request: pytest.FixtureRequest, _databases: Callable[[str], Database]) -> Database:
    database = _databases(request.param)
    database.empty()
    return database


@contextmanager
def deployed(db: Database, folder: Path) -> Iterator[tuple[Site[Old], Site[New]]]:
    with Site(db, folder, Old) as old, Site(db, folder, New) as new:
        yield old, new


def test_a_rolling_deploy(db: Database, tmp_path: Path) -> None:
    """Renamed tasks, new arguments with and without a default: nothing fails, no attempt is used up, nothing runs twice.

    In the order that the docs say: the new workers beside the old ones, then nothing old is enqueued any more, and the
    old workers are stopped once `dibs check` finds nothing that only they can run.
    """
    with deployed(db, tmp_path) as (old, new):
        old_workers = old.start_many(2, concurrency=4)
        before = Producer(old.program)
        wait_for(lambda: len(before.jobs) >= WHILE_BOTH_RUN)
        new_workers = new.start_many(2, concurrency=4)
        after = Producer(new.program)
        enough = len(before.jobs) + 3 * WHILE_BOTH_RUN
        wait_for(lambda: len(before.jobs) >= enough and len(after.jobs) >= 3 * WHILE_BOTH_RUN)
        before.stop()
        wait_for(lambda: check(new.app).fits, within=40, every=0.2, what="the new code to fit all that waits")
        for worker in old_workers:
            worker.terminate()
            assert worker.wait() == 0
            seen = len(after.jobs)
            wait_for(lambda seen=seen: len(after.jobs) > seen + 30)  # type: ignore[misc]
        after.stop()
        ids = [*before.jobs, *after.jobs]
        jobs = new.wait_ended(ids)

        assert Counter((job.status, job.attempts, job.crashes) for job in jobs) == {("done", 1, 0): len(ids)}
        assert new.diary.starts() == Counter(ids), "each job was run once"
        assert Counter(entry.job for entry in new.diary.entries("end")) == Counter(ids)
        # It was as it was meant to be: misfits on both sides, and old jobs under their old name run by new workers.
        unfit = {(job.task, "currency" in job.payload) for job in jobs if job.errors}
        assert {("charge", False), ("charge", True)} <= unfit
        pids = {worker.pid for worker in new_workers}
        assert {
            job.task for job in jobs if job.task == "mail" and new.diary.entries("start", job=job.id)[0].pid in pids
        }
