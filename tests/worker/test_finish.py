"""`current_job().finish(connection=…)`: a job and its effect in one transaction of the user's, on each database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs import current_job
from dibs.errors import LostClaim
from dibs.retries import Backoff
from worker.harness import Site
from worker.program import GLANCE, Program
from worker.users import KINDS, users_connection, write

QUICK = Backoff(first=0.01, factor=1.0, cap=0.01, jitter=0.0)


class Paying(Program):
    """A task with an effect in the same database, that had better happen once."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        app, diary = self.app, self.diary

        @app.task(name="pay", backoff=QUICK, max_attempts=3)
        def pay(kind: str, how: str, gate: str = "") -> str:
            job = current_job()
            with diary.run():
                while gate and not any((folder / name).exists() for name in (gate, f"{gate} for {os.getpid()}")):
                    time.sleep(GLANCE)
                with users_connection(app, kind) as connection:
                    try:
                        job.finish({"paid": os.getpid()}, connection=connection)
                    except LostClaim:
                        diary.write("LostClaim")
                        raise
                    write(connection, f"INSERT INTO effects (job, pid) VALUES ({job.id}, {os.getpid()})")
                    if how == "commit":
                        connection.commit()
                    elif how == "roll back the first" and job.attempts == 1:
                        connection.rollback()
                    elif how == "fail the first" and job.attempts == 1:
                        raise ValueError("before the commit")
                    else:
                        connection.commit()
                    if how == "fail after the commit":
                        raise ValueError("after the commit")
                return "the result of finish() counts, not this"

        self.pay = pay


@pytest.fixture
def paying(db: Database, tmp_path: Path) -> Iterator[Site[Paying]]:
    db.execute("DROP TABLE IF EXISTS effects")
    db.execute("CREATE TABLE effects (job bigint, pid bigint)")
    with Site(db, tmp_path, Paying) as site:
        yield site
    db.execute("DROP TABLE effects")


def effects(site: Site[Paying]) -> dict[int, int]:
    """Return how often each job was paid, as the database says."""
    return dict(site.db.fetch("SELECT job, count(*) FROM effects GROUP BY job"))


def test_the_effect_and_the_end_are_one(paying: Site[Paying]) -> None:
    """Committed together; rolled back together, and then the job is tried again; what the task does after the commit
    changes nothing. On the driver's connection, and on SQLAlchemy's two."""
    worker = paying.start(concurrency=3)
    ways = ["commit", "roll back the first", "fail the first", "fail after the commit"]
    jobs = {(kind, how): paying.program.pay.enqueue(kind=kind, how=how).id for how in ways for kind in KINDS}
    paying.wait_ended(jobs.values())
    for (kind, how), job_id in jobs.items():
        job = paying.job(job_id)
        attempts = 2 if how.endswith("the first") else 1
        assert (job.status, job.attempts, job.result) == ("done", attempts, {"paid": worker.pid}), (kind, how)
        assert paying.diary.starts()[job_id] == attempts
        errors = [entry["error"] for entry in job.errors]
        if how == "roll back the first":
            assert "its transaction was not committed" in errors[0]
        elif how == "fail the first":
            assert "before the commit" in errors[0]
        else:
            assert errors == []
    assert effects(paying) == dict.fromkeys(jobs.values(), 1)


def test_a_zombie_pays_nothing(paying: Site[Paying]) -> None:
    """A worker that stood still past its lease comes back and wants to pay: it gets LostClaim, and its writes are
    rolled back, since another one has paid."""
    zombie = paying.start(concurrency=1)
    job = paying.program.pay.enqueue(kind="driver", how="commit", gate="go")
    paying.wait_started(job.id)
    zombie.freeze()
    other = paying.start(concurrency=1)
    # Seconds as a rule; one frozen in the midst of a transaction keeps its locks until the server ends the session.
    wait_for(lambda: paying.diary.starts()[job.id] == 2, within=320, what="another worker to take the job")
    paying.open("go", only_for=other)
    paying.wait_ended(job.id)
    zombie.thaw()
    paying.open("go", only_for=zombie)
    wait_for(lambda: paying.diary.pids("LostClaim")[zombie.pid], within=10, what="the zombie to be refused")
    assert paying.db.fetch("SELECT job, pid FROM effects") == [(job.id, other.pid)]
    ended = paying.job(job.id)
    assert (ended.status, ended.result, ended.attempts) == ("done", {"paid": other.pid}, 2)
    assert zombie.alive


def test_a_cancelled_job_pays_nothing(paying: Site[Paying]) -> None:
    """Cancelled at the last moment, before its worker knows: `finish` raises Cancel, and nothing is paid."""
    paying.start(concurrency=1, lease=60.0)
    jobs = [paying.program.pay.enqueue(kind=kind, how="commit", gate=kind).id for kind in KINDS]
    for kind, job_id in zip(KINDS, jobs, strict=True):
        paying.wait_started(job_id)
        assert paying.app.cancel(job_id) == [job_id]
        paying.open(kind)
    assert {(job.status, job.attempts) for job in paying.wait_ended(jobs)} == {("cancelled", 1)}
    assert [entry.detail for entry in paying.diary.entries("raised")] == ["Cancel"] * 3
    assert effects(paying) == {}
