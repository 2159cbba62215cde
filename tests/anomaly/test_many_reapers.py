"""Leases that ran out, taken back by many at once: each one time, whatever its owner does meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from conformance.hands import Queue, new_job
from databases import Database
from dibs.store import Store
from worker.harness import LEASE, Site
from worker.program import Program

REAPERS = 10


def reap(store: Store) -> list[int]:
    """Take back what is past, once, whoever else is at it; return the jobs."""
    expired = store.run(partial(store.dialect.expire, reachable=1e9, limit=100))
    return [job.id for job in expired]


def test_ten_reapers_at_once(db: Database) -> None:
    """A thousand jobs of a worker that is gone: each is sent round again by one of them, with one crash and no attempt
    but the one that it had begun."""
    queue = Queue(db)
    queue.enqueue(*[new_job() for _ in range(1_000)])
    started, held = queue.claim(worker="gone", limit=500), queue.claim(worker="gone", limit=500, start=0)
    assert (len(started), len(held)) == (500, 500)
    db.execute("UPDATE dibs_jobs SET lease_until = '2001-01-01 00:00:00.000'")

    def reaper(_: int) -> list[int]:
        app = db.app()
        try:
            mine: list[int] = []
            while found := reap(app.store):
                mine += found
            return mine
        finally:
            app.close()

    with ThreadPoolExecutor(REAPERS) as pool:
        taken = Counter(job_id for mine in pool.map(reaper, range(REAPERS)) for job_id in mine)
    while missed := reap(queue.store):  # what each passed over while another had its rows
        taken.update(missed)
    assert taken == Counter(claim.id for claim in [*started, *held])
    rows = db.fetch("SELECT status, attempts, crashes, claims, count(*) FROM dibs_jobs GROUP BY 1, 2, 3, 4")
    assert sorted(rows) == [("ready", 0, 1, 1, 500), ("ready", 1, 1, 1, 500)]
    queue.close()


@pytest.mark.slow
def test_reapers_and_workers_that_stand_still(site: Site[Program]) -> None:
    """2,000 jobs, four workers of which one after the other stands still for about a lease, and reapers that never rest:
    no late end of a run is taken for the end of another, and each lease that ran out sends its job round once."""
    dice = random.Random(5)
    calls = [
        dice.choice([site.program.nap, site.program.anap]).call(seconds=dice.uniform(0.2, 0.6)) for _ in range(2_000)
    ]
    jobs = [job.id for job in site.app.enqueue_many(calls)]
    stores = [site.db.app().store for _ in range(2 if site.db.kind == "sqlite" else 8)]
    taken: Counter[int] = Counter()
    at_end = threading.Event()

    def reaper(store: Store) -> None:
        while not at_end.wait(0.02):
            taken.update(reap(store))

    threads = [threading.Thread(target=reaper, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    try:
        workers = site.start_many(4, concurrency=8, lease=LEASE)
        end = time.monotonic() + 25
        while time.monotonic() < end:
            worker = dice.choice(workers)
            site.freeze(worker)
            time.sleep(dice.uniform(0.8, 1.5) * LEASE)
            worker.thaw()
            time.sleep(0.2)
        ended = site.wait_ended(jobs, within=60)
    finally:
        at_end.set()
        for thread in threads:
            thread.join()
        for store in stores:
            store.close()
    assert {job.status for job in ended} <= {"done", "failed"}
    nothing_lost_nothing_twice(site, jobs)
    by_workers = Counter(
        int(line.split("job ")[1].split(":")[0]) for line in site.logs().splitlines() if "ran out in" in line
    )
    for job in ended:
        assert job.crashes == taken[job.id] + by_workers[job.id], "each lease that ran out is one crash"
        assert job.claims >= job.crashes
        assert job.status == "done" or job.crashes == 5, "given up only by the rule"
