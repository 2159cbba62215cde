"""Workers that end by themselves: after so many jobs, so much memory, so much time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import JOBS
from conftest import wait_for
from worker.harness import Site
from worker.program import Program
from worker.test_cli_worker import Place, place_on

#: Tasks that keep what they have: in the worker, and in a process of their own.
HOARDERS = """
kept = []

@app.task(name="hoard")
def hoard(folder: str) -> None:
    kept.append(bytearray(b"x") * 200_000_000)

@app.task(name="hoard elsewhere", runs_in="process")
def hoard_elsewhere(folder: str) -> None:
    kept.append(bytearray(b"x") * 200_000_000)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_on(tmp_path, f"sqlite:///{tmp_path / 'dibs.db'}", JOBS + HOARDERS) as place:
        place.app.counts()
        yield place


def test_jobs(site: Site[Program]) -> None:
    """It runs exactly so many, threads and async ones together, and has claimed no others: not ahead either."""
    tasks = [site.program.note, site.program.anote]
    site.app.enqueue_many(tasks[number % 2].call(number=number) for number in range(60))
    worker = site.start(max_jobs=41)
    assert worker.wait() == 0
    assert worker.lines("has run as many jobs as it may, 41, and ends")
    claimed = [job for job in site.app.jobs(limit=100) if job.claims]
    assert len(claimed) == 41
    assert {(job.status, job.attempts) for job in claimed} == {("done", 1)}
    assert len(site.diary.starts()) == 41


def test_jobs_that_still_run(site: Site[Program]) -> None:
    """It ends when they have: its last jobs have all the time that they need."""
    job = site.program.gate.enqueue("end")
    left = site.program.note.enqueue()
    worker = site.start(max_jobs=1, grace=0.0)
    site.wait_started(job.id)
    assert site.job(left.id).claims == 0
    site.open("end")
    assert worker.wait() == 0
    assert [site.job(each.id).status for each in (job, left)] == ["done", "ready"]


def test_age(place: Place) -> None:
    """When its time is over it ends as at a SIGTERM: what runs may end within the grace, and it leaves with 0."""
    place.enqueue("gate")
    worker = place.start("--max-age", "1s")
    wait_for(lambda: "it has worked for about as long as it may, 1 s" in worker.log(), what="its time to be over")
    assert place.statuses() == {("running", 1)}
    place.let_it_end()
    assert worker.wait() == 0
    assert place.statuses() == {("done", 1)}


@pytest.mark.parametrize("task", ["hoard", "hoard elsewhere"])
def test_memory(place: Place, task: str) -> None:
    """It ends when its process and those of its tasks take more than it may, says how much, and leaves with 0."""
    worker = place.start("--max-memory", "150M")
    worker.wait_for_workers(1)
    place.enqueue(task)
    assert worker.wait() == 0
    assert re.search(r"ends: its memory is (1[5-9]\d|[23]\d\d)\.?\d*M, and 150M is allowed", worker.log()), worker.log()
    assert place.statuses() == {("done", 1)}


def test_memory_that_is_too_little(place: Place) -> None:
    """Less than it takes before its first job is refused: it would never run one."""
    worker = place.start("--max-memory", "2M")
    assert worker.wait() == 2
    assert re.search(r"max_memory: the worker takes \d+\.?\d*M before its first job, and 2M is allowed", worker.log())


def test_supervised(place: Place) -> None:
    """Another process starts where one has done as much as it may; that is no death."""
    for _ in range(2):
        place.enqueue("gate")
    place.let_it_end()
    supervisor = place.start("--processes", "1", "--max-jobs", "1")
    wait_for(lambda: place.statuses() == {("done", 1)} or supervisor.process.poll() is not None, what="both jobs")
    assert len(supervisor.wait_for_workers(2)) >= 2
    assert "has ended, another starts" in supervisor.log()
    assert "died" not in supervisor.log()
