"""Workers that stood still for longer than their lease and come back: what they still do counts for nothing, and they
are told, with who has their jobs now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import wait_for
from databases import Database
from dibs.events import Event
from worker.harness import LEASE, Site
from worker.program import Program


class Listening(Program):
    """The usual tasks; what handlers are told of lost claims is written down."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        self.unkept = self.app.task(name="unkept", retention=0)(self.gate.function)

        @self.app.on("lost")
        def lost(event: Event) -> None:
            with (folder / "lost").open("a") as file:
                file.write(f"{os.getpid()} {event.job_id} {event.error}\n")


@pytest.fixture
def listening(db: Database, tmp_path: Path) -> Iterator[Site[Listening]]:
    (tmp_path / "lost").touch()
    with Site(db, tmp_path, Listening) as site:
        yield site


def test_a_worker_that_came_back_from_the_dead(listening: Site[Listening], tmp_path: Path) -> None:
    """Another one has its jobs: the code is told (a thread by `lost`, an async task by its cancellation), so are the
    handlers; late results are refused and logged, each with who has the job or had it; and it works on."""
    site, program = listening, listening.program
    zombie = site.start(concurrency=3)
    unkept = program.unkept.enqueue("first")
    watching, waiting, ended = program.watch.enqueue("end"), program.agate.enqueue("end"), program.gate.enqueue("first")
    jobs = [watching.id, waiting.id, ended.id]
    site.wait_started(*jobs, unkept.id)
    site.freeze(zombie)
    other = site.start(concurrency=3)
    wait_for(
        lambda: all(site.diary.starts()[job] == 2 for job in [*jobs, unkept.id]),
        within=2 * LEASE + 5,
        what="another worker to run them",
    )
    site.open("first", only_for=other)
    assert ended.join(timeout=10) == "first"
    wait_for(lambda: unkept.id not in site.statuses(), within=10, what="the row that is not kept to go")

    zombie.thaw()
    wait_for(lambda: site.diary.pids("lost")[zombie.pid], within=5, what="the thread to be told")
    wait_for(lambda: site.diary.pids("raised")[zombie.pid], within=5, what="the async task to be cancelled")
    told = tmp_path / "lost"
    wait_for(lambda: len(told.read_text().splitlines()) == 4, what="the handlers")
    for job, words in {watching: "has it now", waiting: "has it now", ended: "it is done by now, by"}.items():
        wait_for(lambda: zombie.lines(f"job {job.id}: lost", words, f":{other.pid}:", "is told"), what="who has it")
        (line,) = [line for line in told.read_text().splitlines() if line.startswith(f"{zombie.pid} {job.id} ")]
        assert words in line
        assert f":{other.pid}:" in line
    assert f"{zombie.pid} {unkept.id} it has ended and its row is gone" in told.read_text()

    for gate in ("end", "first"):
        site.open(gate, only_for=zombie)
    for job, words in {watching: "has it now", ended: "it is done by now, by"}.items():
        wait_for(lambda: zombie.lines(f"job {job.id}: lost", words, f":{other.pid}:", "is refused"), within=5)
    wait_for(lambda: zombie.lines(f"job {unkept.id}: lost", "row is gone", "is refused"), within=5)
    assert {site.job(job.id).status for job in (watching, waiting)} == {"running"}
    assert site.diary.pids("lost")[other.pid] == 0
    site.open("end", only_for=other)
    results = [(job.status, job.result, job.attempts, job.claims) for job in site.wait_ended(jobs)]
    assert results == [("done", result, 2, 2) for result in (other.pid, "end", "first")]

    other.terminate()
    assert other.wait() == 0
    assert program.note.enqueue(number=5).join(timeout=10) == 5
    assert site.diary.entries("start")[-1].pid == zombie.pid


def test_a_worker_that_claims_its_own_lost_job(listening: Site[Listening]) -> None:
    """What was taken back from it it may be the first to claim again: its earlier run is told that it is lost, long before
    the leases are renewed, and the later one counts."""
    site = listening
    worker = site.start(concurrency=2, lease=60.0)
    watching, waiting = site.program.watch.enqueue("end"), site.program.agate.enqueue("end")
    site.wait_started(watching.id, waiting.id)
    site.db.execute("UPDATE dibs_jobs SET status = 'ready', crashes = 1, lease_owner = NULL, lease_until = NULL")
    wait_for(lambda: set(site.diary.starts().values()) == {2}, within=5, what="both to be started anew")
    wait_for(lambda: [entry for entry in site.diary.entries("lost") if entry.claims == 1], within=5, what="the thread")
    wait_for(lambda: [entry for entry in site.diary.entries("raised") if entry.claims == 1], within=5, what="the loop")
    for job in (watching, waiting):
        assert worker.lines(f"job {job.id}: lost", "this worker in a later claim has it now")
    site.open("end")
    assert [(job.status, job.claims) for job in site.wait_ended([watching.id, waiting.id])] == [("done", 2)] * 2
    assert {entry.claims for entry in site.diary.entries("lost")} == {1}
    for job in (watching, waiting):
        wait_for(lambda: worker.lines(f"job {job.id}: lost", "is refused"), within=5, what="the earlier result")


def test_a_row_that_is_gone_was_settled_by_another(listening: Site[Listening], tmp_path: Path) -> None:
    """Where the first thing that a worker says of its job meets no row, that job is lost to it, not done."""
    site = listening
    if site.db.name != "sqlite":
        pytest.skip("what a worker makes of an answer does not depend on the database")
    worker = site.start(lease=60.0)
    job, own = site.program.gate.enqueue("end"), site.program.unkept.enqueue("end")
    site.wait_started(job.id, own.id)
    site.db.execute("DELETE FROM dibs_jobs WHERE id = :id", id=job.id)
    site.open("end")
    wait_for(lambda: worker.lines(f"job {job.id}: lost", "row is gone", "is refused"), within=5)
    wait_for(lambda: site.statuses() == {}, within=5, what="the other one's row to go")
    wait_for(lambda: (tmp_path / "lost").read_text(), within=5, what="the handler")
    assert (tmp_path / "lost").read_text().splitlines() == [f"{worker.pid} {job.id} it has ended and its row is gone"]
