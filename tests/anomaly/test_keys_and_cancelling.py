"""A key that others want while its job is tried again, and cancels that meet a job in any state."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from commands import Command
from conftest import wait_for
from databases import Database
from dibs import Backoff, current_job
from dibs.errors import KeyTaken
from worker.harness import LEASE, Site
from worker.program import GLANCE, Program


class Unlucky(Program):
    """A task that fails the first time, and then waits for its gate; another that gives up its key when it is done."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        soon = Backoff(first=0.05, factor=1.0, jitter=0.0)

        def unlucky(gate: str) -> str:
            with self.diary.run():
                if current_job().attempts == 1:
                    raise ValueError("the first time it never works")
                while not (folder / gate).exists():
                    time.sleep(GLANCE)
                return gate

        self.unlucky = self.app.task(name="unlucky", backoff=soon)(unlucky)
        self.waits = self.app.task(name="waits", backoff=Backoff(first=3600.0))(unlucky)
        self.once = self.app.task(name="once", key_until="finished")(unlucky)


@pytest.fixture
def unlucky(db: Database, tmp_path: Path) -> Iterator[Site[Unlucky]]:
    with Site(db, tmp_path, Unlucky) as site:
        yield site


def test_a_key_that_is_wanted_all_the_time(unlucky: Site[Unlucky]) -> None:
    """Its job fails and is tried again, its worker is killed and upkeep takes it back: it keeps its key all along, whoever
    enqueues it meanwhile; requeueing one that had the key before is refused; and nobody else's job is held up."""
    site, program = unlucky, unlucky.program
    former = program.unlucky.using(key="k", delay=3600).enqueue("end")
    site.app.cancel(former.id)
    victim = site.start(concurrency=4)
    job = program.unlucky.using(key="k").enqueue("end")
    answers: list[Any] = []
    through = threading.Event()

    def want() -> None:
        while not through.is_set():
            answers.append(program.unlucky.using(key="k").enqueue("end"))
            through.wait(0.1)

    wanting = threading.Thread(target=want)
    wanting.start()
    try:
        wait_for(lambda: site.diary.starts()[job.id] == 2, within=10, what="the second attempt")
        victim.kill()
        other = site.start(concurrency=4)
        unrelated = [each.id for each in site.app.enqueue_many(program.note.call(number=n) for n in range(100))]
        site.wait_ended(unrelated, within=10)
        wait_for(lambda: site.diary.starts()[job.id] == 3, within=2 * LEASE + 5, what="the third attempt")
        with pytest.raises(KeyTaken) as refused:
            site.app.requeue([former.id])
        assert refused.value.holders == {former.id: job.id}
        site.open("end")
        site.wait_ended(job.id)
    finally:
        through.set()
        wanting.join()
    assert {(each.id, each.created) for each in answers} == {(job.id, False)}
    record, *_ = nothing_lost_nothing_twice(site, [job.id, *unrelated], gone=[victim])
    assert (record.status, record.attempts, record.crashes) == ("done", 3, 1)
    assert site.job(job.id).duplicates == len(answers)
    assert len(other.complaints()) <= 1, "that its lease ran out"


def test_cancelled_where_it_waits_or_its_worker_dies(
    unlucky: Site[Unlucky], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that waits to be tried again never is; one whose worker is killed after it was cancelled ends cancelled and is
    not run again; one that is done stays so. By the command as by the API."""
    site, program, dibs = unlucky, unlucky.program, Command(capsys)
    victim = site.start(concurrency=4)
    retrying = [program.waits.enqueue("never").id for _ in range(2)]
    running = [program.gate.enqueue("never").id, program.agate.enqueue("never").id]
    done = program.note.enqueue(number=1)
    assert done.join(timeout=10) == 1
    site.wait_started(*retrying, *running)
    wait_for(lambda: [job.status for job in site.jobs(retrying)] == ["ready"] * 2, within=5, what="them to wait")
    before = site.job(done.id)

    site.freeze(victim)  # so that it can't heed the wish before it dies
    url = ("--url", site.db.url)
    assert site.app.cancel([retrying[0], running[0], done.id]) == [retrying[0], running[0]]
    assert dibs("cancel", *url, retrying[1], running[1]).code == 0
    refused = dibs("cancel", *url, done.id)
    assert refused.code != 0
    assert site.job(done.id) == before
    victim.kill()
    site.start(concurrency=4)
    ended = site.wait_ended([*retrying, *running], within=2 * LEASE + 5)
    assert {job.status for job in ended} == {"cancelled"}
    assert program.note.enqueue(number=2).join(timeout=10) == 2, "the worker has looked for ready jobs since"
    assert set(site.diary.starts().values()) == {1}
