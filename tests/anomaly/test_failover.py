"""The primary is killed under load, and its replica promoted: everybody goes on there, and nothing that was committed is lost.

`scripts/failover` runs it at full length, on every database, and prints what it measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import url_of

from anomaly.own_server import ONE, own_server
from conftest import wait_for
from databases import Database
from dibs.errors import DatabaseError
from worker.harness import Site, holds
from worker.program import Program

#: Seconds of load before the primary is killed, until its replica is promoted, and after that.
BEFORE, AWAY, AFTER = (float(each) for each in os.environ.get("DIBS_TEST_FAILOVER", "1 5 1").split())
WORKERS = 4
LEASE = 2.0


class Producers:
    """Threads that enqueue without a pause, and know what was committed: each id that an enqueue returned."""

    def __init__(self, site: Site[Program], number: int = 2) -> None:
        self.committed: list[int] = []
        self.refused: Counter[str] = Counter()
        self._site = site
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._enqueue, daemon=True) for _ in range(number)]

    def _enqueue(self) -> None:
        while not self._ending.wait(0.01):
            try:
                self.committed.append(self._site.program.nap.enqueue(seconds=0.01).id)
            except DatabaseError as error:
                self.refused[type(error).__name__] += 1
                self._ending.wait(0.2)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        yield
        self._ending.set()
        for thread in self._threads:
            thread.join(30)


@pytest.mark.parametrize("kind", ONE)
def test_a_replica_is_promoted_under_load(kind: str, tmp_path: Path) -> None:
    """Four workers and the producers find the new primary by themselves, within ten seconds; every job whose enqueue was
    answered is there and is done, each job that ran was started once, also those that ran for longer than three leases
    while there was no database; and each worker says once that it went and once that it came."""
    with own_server(kind) as primary, primary.replica(synchronous=True) as replica:
        database = Database(kind, url_of(primary, replica))
        with Site(database, tmp_path, Program) as site:
            workers = site.start_many(WORKERS, concurrency=4, lease=LEASE)
            long = [site.program.agate.enqueue("after").id for _ in range(WORKERS)]
            site.wait_started(*long)
            producers = Producers(site)
            with producers.at_work():
                wait_for(lambda: len(site.diary.starts()) > 20 * BEFORE, what="the workers to be in full swing")
                holds(lambda: all(worker.alive for worker in workers), during=BEFORE)
                primary.kill()
                killed = time.monotonic()
                holds(lambda: all(worker.alive for worker in workers), during=AWAY)
                replica.promote()
                promoted = time.monotonic()
                back = wait_for(lambda: first_starts(site, promoted, WORKERS), within=30, what="all to be back at work")
                enqueued = len(producers.committed)
                holds(lambda: all(worker.alive for worker in workers), during=AFTER)
                wait_for(lambda: len(producers.committed) > enqueued, what="the producers to be back at work")
            holds(lambda: set(long) <= site.running(), during=1.5 * LEASE)
            site.open("after")
            wait_for(
                lambda: not {"ready", "running"} & set(site.statuses().values()), within=60, every=0.2, what="the end"
            )

            statuses = site.statuses()
            lost = set(producers.committed) - set(statuses)
            starts = site.diary.starts()
            slowest = max(back) - promoted
            print(
                f"\n{kind}: {len(statuses):,} jobs, {len(producers.committed):,} enqueues answered, {len(lost)} of these lost, "
                f"{sum(1 for number in starts.values() if number > 1)} started more than once; refused meanwhile "
                f"{dict(producers.refused)}; away for {promoted - killed:.1f} s; back at work after the promotion: "
                f"{', '.join(f'{at - promoted:.1f}' for at in sorted(back))} s"
            )
            assert lost == set()
            assert set(statuses.values()) == {"done"}
            assert set(starts.values()) == {1}
            assert slowest < 10
            rows = database.fetch("SELECT DISTINCT attempts, crashes FROM dibs_jobs")
            assert [tuple(row) for row in rows] == [(1, 0)]
            for worker in workers:
                assert worker.alive
                assert len(worker.lines("WARNING the database can't be used")) == 1
                assert len(worker.lines("WARNING the database is back after")) == 1
        database.close()


def first_starts(site: Site[Program], since: float, processes: int) -> list[float]:
    """Return when each process first began a job since then, once all have."""
    first: dict[int, float] = {}
    for entry in site.diary.entries("start"):
        if entry.at > since:
            first.setdefault(entry.pid, entry.at)
    return list(first.values()) if len(first) >= processes else []
