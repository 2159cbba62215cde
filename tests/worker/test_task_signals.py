"""What a task raises and returns, however odd: its job ends as it should, and the worker works on.

The jobs of a test are all run by one worker process. What each verdict is, the pure tests say; here it is carried out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from databases import Database
from dibs import Cancel, Fail, Release, Retry, current_job
from dibs.errors import JobCancelled, JobFailed
from dibs.retries import Backoff
from dibs.settings import MOST_ERROR
from worker.harness import Site
from worker.program import Program

QUICK = Backoff(first=0.01, factor=1.0, cap=0.01, jitter=0.0)


class Unprintable(Exception):
    """An exception that can't be turned into text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class NoBase(BaseException):
    """Not an Exception, so `except Exception` lets it through."""


class Wordless(Cancel):
    """A signal whose author forgot the base."""

    def __init__(self) -> None: ...


class WordlessRelease(Release):
    """The same for one that has a delay, too."""

    def __init__(self) -> None: ...


def endless(depth: int = 0) -> int:
    return endless(depth + 1) + 1


def raise_odd(kind: str) -> None:
    """Raise what a task had better not raise."""
    match kind:
        case "unprintable":
            raise Unprintable
        case "unprintable cause":
            raise ValueError("the effect") from Unprintable()
        case "BaseException":
            raise NoBase("through")
        case "SystemExit":
            sys.exit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "GeneratorExit":
            raise GeneratorExit
        case "RecursionError":
            endless()
        case "group":
            raise ExceptionGroup("several", [ValueError("one of them"), KeyError("another")])
        case "huge":
            raise ValueError("head " + "x" * 20_000_000 + " tail")
        case "NUL":
            raise ValueError("a\0b")
        case "surrogate":
            raise ValueError("half \ud800 of a pair")
        case "StopIteration":
            raise StopIteration
        case "no message":
            raise ValueError
        case "Retry(delay='soon')":
            raise Retry(delay="soon")  # type: ignore[arg-type]
        case "Retry(delay=nan)":
            raise Retry(delay=float("nan"))
        case "Release(delay=-1)":
            raise Release(delay=-1)
        case "WordlessRelease":
            raise WordlessRelease
    raise AssertionError(kind)


#: What the stored error has in it, for each odd exception.
ODD = {
    "unprintable": "Unprintable",
    "unprintable cause": "ValueError: the effect",
    "BaseException": "NoBase: through",
    "SystemExit": "SystemExit: 3",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "GeneratorExit": "GeneratorExit",
    "RecursionError": "RecursionError",
    "group": "one of them",
    "huge": " tail",
    "NUL": "a\N{REPLACEMENT CHARACTER}b",
    "surrogate": "half ? of a pair",
    "StopIteration": "StopIteration",
    "no message": "ValueError",
    # Signals that make no sense: what they ask for is not done, what was done is not lost.
    "Retry(delay='soon')": "delay: takes seconds or a timedelta, not str",
    "Retry(delay=nan)": "delay: must be between",
    "Release(delay=-1)": "delay: must be between",
    "WordlessRelease": "WordlessRelease",
}

ODD_RESULTS: dict[str, Any] = {
    "not JSON": object(),
    "too big": "x" * 70_000,
    "NaN": float("nan"),
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "set of objects": {object()},
}


class Steering(Program):
    """Tasks that steer their jobs, fail, and return oddities."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        app, diary = self.app, self.diary

        @app.task(name="retry", backoff=QUICK)
        def retry(times: int, delay: float | None) -> int:
            """Ask for another attempt so many times, then return which one this is."""
            with diary.run():
                attempt = current_job().attempts
                if attempt <= times:
                    raise Retry("not yet", delay=delay)
                return attempt

        @app.task(name="fail_at_first", backoff=QUICK)
        def fail_at_first(times: int) -> int:
            """Fail so many times, then return which attempt this is."""
            with diary.run():
                attempt = current_job().attempts
                if attempt <= times:
                    raise ValueError(f"failure number {attempt}")
                return attempt

        @app.task(name="release")
        def release(times: int) -> int:
            """Be released so many times, then return how often it was started."""
            with diary.run():
                if (starts := diary.starts()[current_job().id]) <= times:
                    raise Release("not yet", delay=0.01)
                return starts

        @app.task(name="end")
        def end(how: str, reason: Any = "enough of it") -> None:
            with diary.run():
                if how == "wordless":
                    raise Wordless
                raise {"cancel": Cancel, "fail": Fail, "stumble": ValueError}[how](reason)

        @app.task(name="odd", backoff=QUICK, max_attempts=2)
        def odd(kind: str) -> None:
            raise_odd(kind)

        @app.task(name="aodd", backoff=QUICK, max_attempts=2)
        async def aodd(kind: str) -> None:
            raise_odd(kind)

        @app.task(name="give")
        def give(kind: str) -> Any:
            return ODD_RESULTS[kind]

        @app.task(name="agive")
        async def agive(kind: str) -> Any:
            return ODD_RESULTS[kind]

        self.retry, self.fail_at_first, self.release, self.end = retry, fail_at_first, release, end
        self.odd, self.aodd, self.give, self.agive = odd, aodd, give, agive


@pytest.fixture
def steering(db: Database, tmp_path: Path) -> Iterator[Site[Steering]]:
    with Site(db, tmp_path, Steering, max_releases=3) as site:
        yield site


def test_signals(steering: Site[Steering]) -> None:
    """Retry, Release, Cancel and Fail do to a job what they say, and count its attempts as they should."""
    tasks = steering.program
    jobs = {
        "retry": tasks.retry.enqueue(times=2, delay=None),
        "retry at once": tasks.retry.enqueue(times=2, delay=0.0),
        "retry in vain": tasks.retry.using(max_attempts=2).enqueue(times=9, delay=0.0),
        "later": tasks.retry.enqueue(times=1, delay=1_000.0),
        "stumble": tasks.end.enqueue(how="stumble"),
        "release": tasks.release.enqueue(times=3),
        "release for ever": tasks.release.enqueue(times=99),
        "cancel": tasks.end.enqueue(how="cancel"),
        "fail": tasks.end.enqueue(how="fail"),
        "cancel with a number": tasks.end.enqueue(how="cancel", reason=7),
        "cancel wordless": tasks.end.enqueue(how="wordless"),
        "fail with a number": tasks.end.enqueue(how="fail", reason=7),
    }
    worker = steering.start(concurrency=4)
    delays = {"later": (990, 1_020), "stumble": (4, 8)}  # five seconds is the first step of the usual backoff
    delayed = {name: jobs.pop(name) for name in delays}
    steering.wait_ended(job.id for job in jobs.values())
    found = {name: steering.job(job.id) for name, job in jobs.items()}
    assert {name: (str(job.status), job.attempts, job.releases, job.result) for name, job in found.items()} == {
        "retry": ("done", 3, 0, 3),
        "retry at once": ("done", 3, 0, 3),
        "retry in vain": ("failed", 2, 0, None),
        "release": ("done", 1, 3, 4),
        "release for ever": ("failed", 1, 3, None),
        "cancel": ("cancelled", 1, 0, None),
        "fail": ("failed", 1, 0, None),
        "cancel with a number": ("cancelled", 1, 0, None),
        "cancel wordless": ("cancelled", 1, 0, None),
        "fail with a number": ("failed", 1, 0, None),
    }
    starts = {name: steering.diary.starts()[job.id] for name, job in jobs.items()}
    assert starts == {name: job.attempts + job.releases for name, job in found.items()}
    for name, job in delayed.items():
        record = steering.job(job.id)
        assert (record.status, record.attempts, record.finished_at) == ("ready", 1, None)
        low, high = delays[name]
        assert low < (record.run_at - record.created_at).total_seconds() < high
    with pytest.raises(JobCancelled, match="enough of it"):
        jobs["cancel"].join(timeout=1)
    with pytest.raises(JobFailed, match="enough of it"):
        jobs["fail"].join(timeout=1)
    assert "not yet" in (found["retry in vain"].error or "")
    assert "3 times, which is the most" in (found["release for ever"].error or "")
    assert worker.alive


def test_the_last_five_errors_are_kept(steering: Site[Steering]) -> None:
    """With their attempts, in order, and the last one in full; also once the job is done."""
    job = steering.program.fail_at_first.enqueue(times=7)
    steering.start()
    assert job.join(timeout=10) == 8
    record = steering.job(job.id)
    assert [entry["attempt"] for entry in record.errors] == [3, 4, 5, 6, 7]
    assert all(f"failure number {entry['attempt']}" in entry["error"] for entry in record.errors)
    assert all(entry["at"] for entry in record.errors)
    assert record.error is not None
    assert record.error.startswith("Traceback")
    assert record.error.endswith("ValueError: failure number 7")
    assert "dibs/worker" not in record.error, "it begins with the task's own code"


def test_odd_exceptions(steering: Site[Steering]) -> None:
    """Whatever a task raises is an attempt like any other: the job is tried again and then failed, its error can be
    read, no slot is lost, and the worker works on."""
    kinds = list(ODD)
    tasks = steering.program
    jobs = {("odd", kind): tasks.odd.enqueue(kind=kind).id for kind in kinds}
    jobs |= {("aodd", kind): tasks.aodd.enqueue(kind=kind).id for kind in kinds}
    worker = steering.start(concurrency=2)
    found = {job.id: job for job in steering.wait_ended(jobs.values(), within=40)}
    for (task, kind), job_id in jobs.items():
        job = found[job_id]
        assert (job.status, job.attempts, len(job.errors)) == ("failed", 2, 2), (task, kind)
        assert job.error is not None
        expected = (
            "RuntimeError: coroutine raised StopIteration" if (task, kind) == ("aodd", "StopIteration") else ODD[kind]
        )
        assert expected in job.error, (task, kind, job.error)
        assert len(job.error) <= MOST_ERROR
        assert sum(len(entry["error"]) for entry in job.errors) < MOST_ERROR
    assert "head x" in (found[jobs["odd", "huge"]].error or ""), "head and tail are kept"
    assert_works_on(steering, worker_slots=2)
    assert worker.alive


def assert_works_on(site: Site[Steering], *, worker_slots: int) -> None:
    """The worker has all its slots still, both kinds."""
    jobs = [site.program.gate.enqueue("still").id for _ in range(worker_slots)]
    jobs += [site.program.agate.enqueue("still").id for _ in range(worker_slots)]
    site.wait_started(*jobs)
    site.open("still")
    assert {job.status for job in site.wait_ended(jobs)} == {"done"}


def test_results_that_cannot_be_stored(steering: Site[Steering]) -> None:
    """The work was done, so it is neither failed nor repeated: the job is done without a result, and there is one
    warning for each task, not one for each job."""
    tasks = steering.program
    jobs = [task.enqueue(kind=kind).id for task in (tasks.give, tasks.agive) for kind in ODD_RESULTS for _ in range(2)]
    worker = steering.start(concurrency=2)
    assert {(job.status, job.attempts, job.result, job.error) for job in steering.wait_ended(jobs)} == {
        ("done", 1, None, None)
    }
    assert len(worker.lines("WARNING", "the result of give is not stored")) == 1
    assert len(worker.lines("WARNING", "the result of agive is not stored")) == 1
    assert len(worker.complaints()) == 2
