"""What tasks in processes do that nobody thought of: it ends their own job in the usual way, and no other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import wait_for
from databases import Database
from worker.harness import Site
from worker.odd_program import OddProgram


@pytest.fixture
def site(sqlite: Database, tmp_path: Path) -> Iterator[Site[OddProgram]]:
    """On SQLite alone: it takes place between a worker and its processes."""
    with Site(sqlite, tmp_path, OddProgram) as site:
        yield site


def test_signals_that_do_not_fit_into_a_message(site: Site[OddProgram]) -> None:
    """They steer their jobs as they do in a thread: one that can't be written, such as the name of a file that is in no
    encoding, does not end the process, which would be another attempt."""
    expected = {
        "fail with half a character": ("failed", "dibs.errors.Fail: cannot read caf?.txt"),
        "fail with an unprintable reason": ("failed", "dibs.errors.Fail: <exception str() failed>"),
        "cancel with half a character": ("cancelled", "no use: caf?.txt"),
        "retry in ages": ("ready", "delay: must be between"),
        "retry beyond numbers": ("ready", "delay: takes seconds"),
        "retry in True": ("ready", "delay: takes seconds"),
    }
    jobs = {kind: site.program.signals.enqueue(kind=kind).id for kind in expected}
    last = site.program.forks.enqueue("exits").id
    site.start(concurrency=1)
    assert site.wait_ended(last)[0].result == [3, 3, 3]
    for kind, (status, said) in expected.items():
        job = site.job(jobs[kind])
        assert (job.status, job.attempts) == (status, 1), kind
        assert said in (job.error or ""), kind
    assert not site.workers[0].lines("Traceback"), "the process went on"


def test_progress_in_words_that_cannot_be_written(site: Site[OddProgram]) -> None:
    """The process goes on hearing its worker: it makes checkpoints, and runs the next job."""
    jobs = [site.program.notes.enqueue().id for _ in range(2)]
    site.start(concurrency=1)
    for job in site.wait_ended(jobs):
        assert (job.result, job.checkpoint) == ("done", "told")
        assert "at caf?.txt" in str(job.progress)


def test_records_that_cannot_be_logged(site: Site[OddProgram]) -> None:
    """The task goes on, as it does in a thread, where its handlers report what is wrong with the record."""
    site.start()
    (job,) = site.wait_ended(site.program.logs_amiss.enqueue().id)
    assert (job.status, job.attempts) == ("done", 1)
    assert site.workers[0].lines("WARNING", "red")


def test_forks_that_come_back(site: Site[OddProgram]) -> None:
    """A child of the task's own that gets out of its code ends there: what it would say is not taken for the end of this
    job, nor of the next one."""
    expected = {"returns": [0, 0, 0], "exits": [3, 3, 3], "raises": [1, 1, 1]}
    jobs = [site.program.forks.enqueue(how).id for how in expected]
    site.start(concurrency=1)
    found = site.wait_ended(jobs)
    assert [(job.status, job.attempts) for job in found] == [("done", 1)] * 3
    assert [job.result for job in found] == list(expected.values())


def test_forks_that_are_told_to_end(site: Site[OddProgram]) -> None:
    """They do: the signals of a worker's own that they inherit are not theirs to pass over. (A pool of multiprocessing
    waits for it for ever.)"""
    jobs = [task.enqueue().id for task in site.program.pools]
    site.start(concurrency=1)
    assert [job.result for job in site.wait_ended(jobs)] == [[1, 2, -15]] * 2


def test_forks_that_are_told_to_end_at_once(site: Site[OddProgram]) -> None:
    """They do as well: a signal that comes while a fork still settles in is not lost. A SIGINT is an exception in them, or
    ends them by itself."""
    jobs = [task.enqueue().id for task in site.program.told_at_once]
    site.start(concurrency=1)
    for job in site.wait_ended(jobs):
        assert set(job.result) <= {-15, -2, 1}, "what they had to do they did to its end"
        assert -15 in job.result


def test_a_thread_that_a_task_left_behind(site: Site[OddProgram], tmp_path: Path) -> None:
    """Its checkpoint is refused, and not taken for one of the job that runs there by now."""
    site.start(concurrency=1)
    first = site.program.leaves_a_thread.enqueue("later").id
    site.wait_ended(first)
    second = site.program.leaves_a_thread.enqueue("never").id
    site.wait_ended(second)
    third = site.program.steps["process"].enqueue("open", 1, 0).id
    wait_for(lambda: site.diary.entries("waits"), what="the third job")
    site.open("later")
    wait_for(lambda: list(tmp_path.glob("refused")) + list(tmp_path.glob("stored")), what="the thread")
    assert not (tmp_path / "stored").exists()
    assert site.job(third).checkpoint is None
    site.open("open")
    site.wait_ended(third)
