"""The database does what it is asked, and its answer gets lost: the worker finds out what has happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from databases import Database
from dibs.errors import DatabaseUnavailable, OutcomeUnknown
from dibs.store import Store
from worker.harness import Site
from worker.program import Program


class Line:
    """The line between a worker's fetcher and its database. It can be cut once, after a claim or after a settle,
    and is then dead for a few calls more."""

    def __init__(self, store: Store, *, cut_claims: bool, dead_for: int) -> None:
        self._run = store.run
        self._cut_claims = cut_claims
        self._dead_for = dead_for
        self._dead: int | None = None

    def run(self, make: Callable[[], Any], *, once: bool = False, haste: bool = False) -> Any:
        if self._dead:
            self._dead -= 1
            raise DatabaseUnavailable("the line is dead")
        result = self._run(make, once=once, haste=haste)
        of_interest = once if self._cut_claims else isinstance(result, dict)  # what settling answers
        if self._dead is None and of_interest and result:
            self._dead = self._dead_for
            raise OutcomeUnknown("cut") if once else DatabaseUnavailable("cut")
        return result


@contextmanager
def worker_behind(site: Site[Program], monkeypatch: pytest.MonkeyPatch, **faults: Any) -> Iterator[None]:
    """Run a worker in this process whose fetcher talks over a line with faults."""
    new_store = site.app.new_store

    def with_faults(**settings: Any) -> Store:
        store = new_store(**settings)
        if settings.get("name") == "dibs worker":
            monkeypatch.setattr(store, "run", Line(store, **faults).run)
        return store

    monkeypatch.setattr(site.app, "new_store", with_faults)
    worker = site.app.worker(lease=30.0, concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("dead_for", [0, 3])
@pytest.mark.parametrize("cut_claims", [True, False], ids=["claim", "settle"])
def test_an_answer_that_was_lost(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_claims: bool, dead_for: int
) -> None:
    """What a claim took is run by the one who took it, and what a settle wrote is not done again: at once or when the
    database is back, and without waiting for a lease."""
    with Site(db, tmp_path, Program) as site:
        jobs = [job.id for job in site.app.enqueue_many(site.program.note.call(number=n) for n in range(5))]
        with worker_behind(site, monkeypatch, cut_claims=cut_claims, dead_for=dead_for):
            records = site.wait_ended(jobs, within=10)
        assert {(job.status, job.attempts, job.claims, job.crashes) for job in records} == {("done", 1, 1, 0)}
        assert site.diary.starts() == dict.fromkeys(jobs, 1)
