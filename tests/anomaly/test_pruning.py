"""Half a million finished jobs that are due to go: deleted while everybody works on, by whoever comes, killed or not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from anomaly.big import ROWS, ended, write
from anomaly.claiming import Claimer, busy, p95
from anomaly.invariants import nothing_lost_nothing_twice
from commands import environment
from conformance.test_plans import PAST
from conftest import wait_for
from databases import NAMES, Database, migrated
from worker.harness import LEASE, Site
from worker.program import Program

pytestmark = pytest.mark.slow

#: The age (whole seconds) and the statement of the oldest transaction of dibs' own.
OLDEST = {
    "postgres": """
        SELECT floor(extract(epoch FROM clock_timestamp() - xact_start)), query FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'dibs%' AND xact_start IS NOT NULL
        ORDER BY xact_start LIMIT 1
    """,
    "mysql": """
        SELECT TIMESTAMPDIFF(SECOND, t.trx_started, NOW()) - 1, left(t.trx_query, 200)
        FROM information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
        WHERE p.db = DATABASE() ORDER BY t.trx_started LIMIT 1
    """,
}
#: InnoDB shows transactions as they were when it was last asked, unless nobody has asked for a tenth of a second.
SHOWN_ANEW = 0.2

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def prune(db: Database) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "dibs", "prune"], env=environment(db.url))


def all_ended(pruners: list[subprocess.Popen[bytes]]) -> bool:
    return all(pruner.poll() is not None for pruner in pruners)


def fewer_left(db: Database, number: int) -> bool:
    return count(db, f"expires_at = {PAST}") < number


@dataclass
class Seen:
    """What was seen while others prune: how long each claim took, and the oldest transaction with its statement."""

    claims: list[float] = field(default_factory=list)
    oldest: tuple[int, str | None] = (0, None)


@contextmanager
def watched(db: Database, claimer: Claimer) -> Iterator[Seen]:
    """Claim again and again meanwhile, and look at transactions."""
    seen, through = Seen(), threading.Event()

    def watch() -> None:
        looked = time.monotonic()
        while not through.wait(0.01):
            seen.claims.append(claimer.once())
            if db.kind in OLDEST and time.monotonic() - looked > SHOWN_ANEW:
                for age, statement in db.fetch(OLDEST[db.kind]):
                    seen.oldest = max(seen.oldest, (int(age), statement), key=lambda each: each[0])
                looked = time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield seen
        finally:
            through.set()
        watching.result()


def count(db: Database, where: str) -> int:
    ((number,),) = db.fetch(f"SELECT count(*) FROM dibs_jobs WHERE {where}")
    return int(number)


@pytest.mark.parametrize("name", NAMES)
def test_two_that_prune_and_one_that_dies(name: str, tmp_path: Path) -> None:
    """Two at once beside four workers, one killed half-way and begun anew: all that was due is gone and nothing else,
    no transaction was long, nobody was in anybody's way. A worker that is killed meanwhile loses its job to another
    as soon as ever."""
    for db in migrated(name, tmp_path):
        with Site(db, tmp_path, Program) as site:
            ended(db, 2 * ROWS // 5, "done", expires=PAST)
            ended(db, ROWS // 10, "failed", expires=PAST)
            ended(db, 1_000, "done")
            write(db, 1_000, queue="'kept'", run_at="'2091-01-01 00:00:00.000'")
            with Claimer(db, queue="measured") as claimer:
                idle = claimer.p95(100)
                workers = site.start_many(4, concurrency=2, queues=["default"])
                calls = (site.program.nap.call(seconds=0.05) for _ in range(400))
                jobs = [job.id for job in site.app.enqueue_many(calls)]
                long = site.program.gate.enqueue("later")
                pruners = [prune(db), prune(db)]
                with watched(db, claimer) as seen:
                    wait_for(partial(fewer_left, db, 9 * ROWS // 20), within=60, what="a good part to be gone")
                    pruners[0].kill()
                    pruners[0].wait()
                    pruners.append(prune(db))
                    site.wait_started(long.id)
                    (owner,) = {entry.pid for entry in site.diary.entries("start", job=long.id)}
                    victim = next(worker for worker in workers if worker.pid == owner)
                    killed = victim.kill()
                    wait_for(partial(all_ended, pruners), within=300, what="the pruning to end")
            assert [pruner.wait() for pruner in pruners[1:]] == [0, 0]
            again = prune(db)
            assert again.wait() == 0
            assert count(db, f"expires_at = {PAST}") == 0
            assert (
                count(db, "queue = 'kept'")
                == count(db, "status = 'done' AND task = 'note' AND queue = 'default'")
                == 1_000
            )
            wait_for(lambda: site.diary.starts()[long.id] == 2, what="the killed worker's job to run again")
            second = site.diary.entries("start", job=long.id)[-1]
            assert second.at - killed < 2 * LEASE + 3
            site.open("later")
            site.wait_ended([*jobs, long.id], within=60)
            nothing_lost_nothing_twice(site, [*jobs, long.id], gone=[victim])
            if db.kind == "postgres":
                assert db.fetch(DEADLOCKS) == [(0,)]
            with Claimer(db, queue="measured") as claimer:  # others may have made the machine busier meanwhile
                idle = max(idle, claimer.p95(100))
            print(
                f"{name}: claims {idle * 1e3:.1f} ms alone, {p95(seen.claims) * 1e3:.1f} ms while pruning, "
                f"the longest transaction {seen.oldest[0]} s or a little more"
            )
            assert seen.oldest[0] < 1.0 * busy(idle), seen.oldest[1]
            assert p95(seen.claims) <= max(3 * idle, 0.25)
