"""Jobs that outlive their first lease, and jobs that wait for longer than one: no healthy job is handed out again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from databases import NAMES, Database
from dibs.jobs import Claim
from dibs.ops import Op
from worker.harness import LEASE, Site
from worker.program import Program

REMAINING = {
    "postgres": "extract(epoch FROM lease_until - clock_timestamp())",
    "mysql": "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_until) / 1e6",
    "sqlite": "(julianday(lease_until) - julianday('now')) * 86400.0",
}


def looks(site: Site[Program], ids: Iterable[int]) -> Iterable[list[tuple[Any, float]]]:
    """Yield until all jobs have ended, again and again, until when the leases are good that run, and for how many seconds
    that still is, by the database's clock."""
    while site.running() or not set(ids) <= set(site.diary.starts()):
        rows = site.db.fetch(f"SELECT lease_until, {REMAINING[site.db.kind]} FROM dibs_jobs WHERE status = 'running'")
        yield [(until, float(left)) for until, left in rows]
        time.sleep(0.05)


@pytest.fixture
def one_site(sqlite: Database, tmp_path: Path) -> Iterator[Site[Program]]:
    """On SQLite alone: when the renewing thread wakes up has nothing to do with the database."""
    with Site(sqlite, tmp_path, Program) as site:
        yield site


def test_a_lease_is_renewed_every_third_of_it(one_site: Site[Program]) -> None:
    """Also where a third is a little more than the second in which the renewing thread looks at other things."""
    lease = 3.03
    one_site.start(lease=lease)
    job = one_site.program.nap.enqueue(seconds=2 * lease)
    seen = {until for look in looks(one_site, [job.id]) for until, _ in look}
    nothing_lost_nothing_twice(one_site, [job.id], crashed=False)
    assert len(seen) >= 5, "at first, and after each third but the last"


class SlowAnswers(Program):
    """The answer to a claim takes longer than the lease: a large payload, or a server that has much to do."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, folder, **settings)
        claim = self.app.dialect.claim

        def slow(*args: Any, **kwargs: Any) -> Op[list[Claim]]:
            claims = yield from claim(*args, **kwargs)
            if claims:
                time.sleep(1.3 * LEASE)
            return claims

        self.app.dialect.claim = slow  # type: ignore[method-assign]


def test_a_claim_that_is_answered_late(sqlite: Database, tmp_path: Path) -> None:
    """Its job runs, in its first claim, and is not given back and claimed again for ever. On SQLite alone: a worker's own
    clock says what is late."""
    with Site(sqlite, tmp_path, SlowAnswers) as site:
        job = site.program.note.enqueue(number=7)
        site.start(lease=LEASE)
        assert job.join(timeout=15) == 7
        (done,) = nothing_lost_nothing_twice(site, [job.id], crashed=False)
    assert (done.attempts, done.claims) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("lease", [2.0, 3.03])
def test_ten_jobs_of_five_leases(site: Site[Program], lease: float) -> None:
    """Each starts once, and a third of its lease is left, at least, as long as it runs: sync and async ones."""
    site.start_many(2, concurrency=5, lease=lease)
    tasks = [site.program.nap, site.program.anap]
    calls = [tasks[number % 2].call(seconds=5 * lease) for number in range(10)]
    jobs = [job.id for job in site.app.enqueue_many(calls)]
    least = min(left for look in looks(site, jobs) for _, left in look)
    done = nothing_lost_nothing_twice(site, jobs, crashed=False)
    assert {(job.status, job.attempts) for job in done} == {("done", 1)}
    assert least >= lease / 3


@pytest.mark.slow
def test_a_job_of_three_leases_of_the_usual_length(site: Site[Program]) -> None:
    """As a user has it who sets nothing: three minutes, one start."""
    if site.db.name != next(name for name in ("postgres", "sqlite") if name in NAMES):
        pytest.skip("once is enough: the others are tried with shorter leases")
    site.start_many(2, lease=60.0)
    job = site.program.nap.enqueue(seconds=180.0)
    least = min(left for look in looks(site, [job.id]) for _, left in look)
    (done,) = nothing_lost_nothing_twice(site, [job.id], crashed=False)
    assert (done.status, done.attempts) == ("done", 1)
    assert least >= 20.0


@pytest.mark.slow
def test_jobs_of_later(site: Site[Program]) -> None:
    """Fifty jobs that are due in four leases: nobody takes them before, each starts once, and none too early."""
    site.start_many(4, concurrency=20, lease=2.0)
    site.learn_that_notes_are_quick()
    due = site.app.enqueue_many(site.program.note.using(delay=8.0).call(number=n) for n in range(50))
    jobs = [job.id for job in due]
    first = min(job.run_at for job in site.jobs(jobs))
    while True:
        running = site.running()
        if datetime.now(UTC) >= first:  # asked after, since it may take a while until the answer is there
            break
        assert not set(jobs) & running
        time.sleep(0.2)
    site.wait_ended(jobs)
    for job in nothing_lost_nothing_twice(site, jobs, crashed=False):
        assert (job.status, job.attempts, job.claims) == ("done", 1, 1)
        assert job.started_at is not None
        assert job.started_at >= job.run_at


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nap", "anap"])
def test_jobs_that_wait_for_longer_than_a_lease(site: Site[Program], kind: str) -> None:
    """200 jobs that seemed quick until they were begun, four workers with one slot each: what is claimed ahead is renewed
    or given back, and none starts twice or uses an attempt for having waited."""
    site.start_many(4, concurrency=1, lease=2.0)
    site.learn_that_notes_are_quick()
    task = getattr(site.program, kind)
    quick = [job.id for job in site.app.enqueue_many(task.call(seconds=0.0) for _ in range(200))]
    site.wait_ended(quick)
    jobs = [job.id for job in site.app.enqueue_many(task.call(seconds=0.5) for _ in range(200))]
    site.wait_ended(jobs, within=60)
    for job in nothing_lost_nothing_twice(site, jobs, crashed=False):
        assert (job.status, job.attempts) == ("done", 1)
    assert site.diary.starts() == dict.fromkeys(site.diary.starts(), 1)
