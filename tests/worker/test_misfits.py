"""Arguments that do not fit the code of the worker that claims them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databases import Database
from dibs import Dibs, Secret
from dibs.jobs import JobRecord
from worker.harness import Site
from worker.long_program import LongProgram
from worker.program import Program

#: How long (seconds) misfits are released here: as often as with half an hour.
WAIT = 0.9


@pytest.fixture
def site(db: Database, tmp_path: Path) -> Iterator[Site[Program]]:
    with Site(db, tmp_path, Program, misfit_wait=WAIT) as site:
        yield site


@pytest.fixture
def process_site(sqlite: Database, tmp_path: Path) -> Iterator[Site[LongProgram]]:
    """On SQLite alone: what is tested takes place between a worker and its process."""
    with Site(sqlite, tmp_path, LongProgram, misfit_wait=WAIT) as site:
        yield site


def older(site: Site[Any]) -> Dibs:
    """Return an app with an older version's tasks of the same names."""
    app = Dibs(site.db.url)

    @app.task(name="note")
    def note(number: str, more: Secret[str]) -> None: ...

    @app.task(name="anote")
    def anote(count: int) -> None: ...

    @app.task(name="pnote")
    def pnote() -> None: ...

    return app


def failed_of_it(job: JobRecord) -> bool:
    """Did it fail once, with the reason, after it was released as often as it should be, and without an attempt?"""
    assert (job.status, job.attempts, job.crashes, job.releases, job.claims) == ("failed", 0, 0, 0, 36), job
    assert "(released 35 times for a worker whose code fits it; none came)" in (job.error or "")
    assert [entry["error"] for entry in job.errors] == [job.error]
    return True


def test_a_payload_that_does_not_fit(site: Site[Program]) -> None:
    """It is released for a while, then fails its own job alone, with a reason; its neighbours run at once."""
    app = older(site)
    calls = [site.program.note.call(number=n) for n in range(5)]
    good = [job.id for job in site.app.enqueue_many(calls)]
    bad = [app.tasks["note"].enqueue(number="seven", more="hunter2").id, app.tasks["anote"].enqueue(count=1).id]
    good += [job.id for job in site.app.enqueue_many(calls)]
    worker = site.start(concurrency=2)
    assert {(job.status, job.attempts) for job in site.wait_ended(good)} == {("done", 1)}
    thread, loop = site.wait_ended(bad)
    assert failed_of_it(thread)
    assert failed_of_it(loop)
    assert "the payload does not fit note: number: expected `int`" in (thread.error or "")
    assert "the payload does not fit anote: count: task" in (loop.error or "")
    assert not set(bad) & set(site.diary.starts())
    assert len(worker.lines("WARNING", "is released for")) == 2, "once for each task"
    assert len(worker.lines("ERROR", "failed")) == 2
    assert "hunter2" not in worker.log() + (thread.error or "")
    app.close()


def test_in_a_process(process_site: Site[LongProgram]) -> None:
    """The same for a task that runs in a process of its worker's, which reads the arguments there."""
    app = older(process_site)
    bad, good = app.tasks["pnote"].enqueue().id, process_site.program.pnote.enqueue(number=7)
    process_site.start(concurrency=1)
    assert failed_of_it(process_site.wait_ended(bad)[0])
    assert good.join(timeout=20) == (7, None)
    app.close()


def test_at_once_if_so_wished(db: Database) -> None:
    """With `misfit_wait=0` nobody is waited for."""
    app, other = db.app(misfit_wait=0), db.app()
    app.task(name="t")(lambda: None)
    bad = other.task(name="t")(lambda number: None).enqueue(number=1)
    app.worker(burst=True).run()
    job = app.job(bad.id)
    assert (job.status, job.attempts, job.claims) == ("failed", 0, 1)
    assert (
        job.error
        == "the payload does not fit t: number: task test_at_once_if_so_wished.<locals>.<lambda> has no "
        + ("such argument: it takes none")
    )
