"""Where the database is a file: one that is put in its place, and a disk that is full."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from conftest import wait_for
from databases import Database
from dibs import Dibs
from dibs.errors import DatabaseUnavailable
from worker.harness import Site
from worker.program import Program


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site[Program]]:
    """On a file of this test's own."""
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    Dibs(url).migrate()
    database = Database("sqlite", url)
    with Site(database, tmp_path, Program) as site:
        yield site
    database.close()


def test_another_file_is_put_in_its_place(site: Site[Program], tmp_path: Path) -> None:
    """As when a backup is restored. Producers and workers that had the old one open go over to the new one: what they
    write is seen by everybody else. Until there is one, they say that it is gone, and make none."""
    worker = site.start()
    site.wait_ended(site.program.note.enqueue(number=1).id)
    for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
        if (tmp_path / name).exists():
            (tmp_path / name).rename(tmp_path / f"old-{name}")
    with pytest.raises(DatabaseUnavailable, match=r"queue\.db is gone: put it back"):
        site.program.note.enqueue(number=2)
    wait_for(lambda: worker.lines("WARNING", "is gone: put it back"), what="the worker to notice")
    assert not (tmp_path / "queue.db").exists()

    Dibs(f"sqlite:///{tmp_path / 'new.db'}").migrate()
    os.replace(tmp_path / "new.db", tmp_path / "queue.db")
    job = site.program.note.enqueue(number=3)
    assert job.id == 1, "it is the first one of the new file"
    assert job.join(timeout=20) == 3
    wait_for(lambda: worker.lines("WARNING", "is back"), what="the worker to say so")


def test_a_full_disk(site: Site[Program], tmp_path: Path) -> None:
    """Nothing is claimed and nothing is lost while there is no room; it is said once, although what only reads goes on
    well; and the work goes on when there is room again."""
    worker = site.start(concurrency=2)
    site.wait_ended(site.program.note.enqueue(number=0).id)
    running = site.program.gate.enqueue("go on").id
    site.wait_started(running)
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (4096, unlimited))
    jobs = [running, *(site.program.note.enqueue(number=number).id for number in range(20))]
    site.open("go on")
    wait_for(lambda: worker.lines("has no room for this"), what="the worker to notice")
    wait_for(lambda: site.diary.entries("end", job=running), what="the job to end")
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert {job.status for job in site.wait_ended(jobs, within=30)} == {"done"}
    nothing_lost_nothing_twice(site, jobs)
    assert len(worker.lines("WARNING", "the database can't be used")) == 1
    assert not worker.lines("answer to a claim was lost"), "it is known that nothing was claimed"


def test_an_enqueue_without_room(site: Site[Program], tmp_path: Path) -> None:
    """It says that there is no room, and not that the outcome is unknown."""
    site.program.note.enqueue(number=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(DatabaseUnavailable, match="has no room for this"):
            site.program.note.enqueue(number=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(site.app.jobs()) == 1
