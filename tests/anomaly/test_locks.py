"""Who waits for whom: producers and workers on one table, isolation levels that a team has set, a file that is locked."""

from __future__ import annotations

import json
import statistics
import threading
import time
from contextlib import closing
from typing import NamedTuple

import pytest

from anomaly.invariants import nothing_lost_nothing_twice
from anomaly.producers import in_processes, in_threads, orders_and_jobs
from conformance.hands import promptly
from conftest import wait_for
from dibs import ops
from dibs.jobs import Lane, Wanted
from dibs.ops import Execute, Fetch
from worker.harness import LEASE, Site, holds
from worker.program import Program
from worker.users import of_driver, write


class Size(NamedTuple):
    """How much there is of it: what CI bears, and the scenario at full length."""

    producers: int
    jobs: int
    workers: int


def sizes(short: Size, full: Size) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("size", [short, pytest.param(full, marks=pytest.mark.slow)], ids=["short", "full"])


def locks_what_it_reads(site: Site[Program]) -> None:
    if site.db.kind != "mysql":
        pytest.skip("only some databases lock what a statement reads")


def deadlocks(site: Site[Program]) -> int:
    """Return how many deadlocks the server has counted."""
    counted = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"
    if site.db.name.startswith("mariadb"):
        counted = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'"
    return int(site.db.fetch(counted)[0][0])


@sizes(Size(4, 25, 2), Size(8, 300, 8))
def test_producers_and_workers_at_once(site: Site[Program], size: Size) -> None:
    """Transactions of users at their isolation levels, with and without keys, while workers claim, settle and poll:
    nobody sees an error, nothing is lost, and polls of an empty queue hold up no enqueue."""
    locks_what_it_reads(site)
    site.db.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY)")
    site.db.execute("DELETE FROM orders")
    workers = site.start_many(size.workers, concurrency=4)
    before, jobs = deadlocks(site), list[int]()

    def produce(place: int) -> None:
        isolation = "REPEATABLE READ" if place % 2 else "READ COMMITTED"
        keyed = place % 4 < 2
        jobs.extend(
            orders_and_jobs(site.app, site.program.note, place, number=size.jobs, isolation=isolation, keyed=keyed)
        )

    assert in_threads(size.producers, produce, within=120) == []
    assert len(jobs) == size.producers * size.jobs
    site.wait_ended(jobs, within=60)
    assert {(job.status, job.attempts) for job in nothing_lost_nothing_twice(site, jobs, crashed=False)} == {
        ("done", 1)
    }
    assert [worker.complaints() for worker in workers] == [[]] * size.workers
    if size.workers > 2:  # alone on its server
        assert deadlocks(site) - before <= len(jobs) / 250, (
            "four operations a job; one in a thousand may be tried again"
        )

    took = []
    for number in range(size.jobs):
        began = time.monotonic()
        site.program.note.using(delay=3600).enqueue(number=number)
        took.append(time.monotonic() - began)
    assert statistics.quantiles(took, n=100)[98] < (0.1 if size.workers > 2 else 1.0)
    site.db.execute("DROP TABLE orders")


OWN_LOCKS = Fetch(
    "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()", {}
)


@pytest.mark.parametrize("number", [2_500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_claim_locks_no_more_than_it_takes(site: Site[Program], number: int) -> None:
    """Its transaction stands still: a second claimer gets others of the same lane at once, out of thousands of mixed
    priorities and times; also with fresh statistics."""
    locks_what_it_reads(site)
    dialect, note, batch = site.app.dialect, site.program.note, 10
    site.app.enqueue_many(note.using(priority=n % 5, delay=(n % 97) / 1000).call(number=n) for n in range(number))
    tasks = dialect.names(["note"])

    def claim(worker: str) -> ops.Op[list[int]]:
        lane = Lane("default", 2)
        claims = yield from dialect.claim(
            Wanted(lane, since=None, tasks=tasks, worker=worker, lease=60.0, start=batch, limit=batch)
        )
        return [each.id for each in claims]

    for statistics_are in ("as they are", "fresh"):
        if statistics_are == "fresh":
            site.db.fetch("ANALYZE TABLE dibs_jobs")
        with site.transaction() as paused:
            first = ops.run(claim("paused"), paused)
            # The server shows transactions as they were up to a tenth of a second ago.
            ((locked,),) = wait_for(lambda: paused.answer(OWN_LOCKS), every=0.15, what="the transaction to be shown")
            began = time.monotonic()
            second = site.app.store.run(lambda: claim("second"))
            took = time.monotonic() - began
        assert len(set(first) | set(second)) == 2 * batch, statistics_are
        assert took < 1, statistics_are
        assert int(locked) <= 3 * batch, statistics_are


@sizes(Size(2, 20, 2), Size(4, 250, 8))
def test_a_strict_isolation_level(site: Site[Program], size: Size) -> None:
    """Where a team has set it for all sessions of the database, and where a user's transaction has it: no error of
    serialization reaches anybody, no worker idles, and enqueues work."""
    if not site.db.locks_rows:
        pytest.skip("there is one level")
    isolation = "SERIALIZABLE"
    site.db.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY)")
    site.db.execute("DELETE FROM orders")
    name = site.app.url.database
    strict = site.db.kind == "postgres"
    if strict:
        site.db.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    try:
        workers = site.start_many(size.workers, concurrency=4)
        jobs: list[int] = []
        produced = in_threads(
            size.producers,
            lambda place: jobs.extend(
                orders_and_jobs(
                    site.app, site.program.note, place, number=size.jobs, isolation=isolation, keyed=place % 2 == 0
                )
            ),
            within=120,
        )
        assert produced == []
        jobs += [
            job.id for job in site.app.enqueue_many(site.program.note.call(number=n) for n in range(size.jobs * 5))
        ]
        site.wait_ended(jobs, within=60)
        nothing_lost_nothing_twice(site, jobs, crashed=False)
        assert [worker.complaints() for worker in workers] == [[]] * size.workers
    finally:
        if strict:
            site.db.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
        site.db.execute("DROP TABLE orders")


def test_open_transactions_at_a_strict_level(site: Site[Program]) -> None:
    """One that has enqueued a key, and one that has finished a job whose key it lets go of: neither keeps anybody from
    enqueueing other keys."""
    if not site.db.locks_rows:
        pytest.skip("one writer at a time")
    dialect, note = site.app.dialect, site.program.note
    job = note.using(key="finished", priority=5).enqueue(number=0)
    claim = dialect.claim(
        Wanted(Lane("default", 5), since=None, tasks=dialect.names(["note"]), worker="w", lease=60.0, start=1, limit=1)
    )
    (claimed,) = site.app.store.run(lambda: claim)
    with closing(of_driver(site.app)) as first, closing(of_driver(site.app)) as second:
        for connection in (first, second):
            if site.db.kind == "mysql":
                write(connection, "SET SESSION innodb_lock_wait_timeout = 3")
                write(connection, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            else:
                write(connection, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            connection.commit()
        with promptly():
            assert note.using(key="a", connection=first).enqueue(number=1).created
            assert site.app.run_on(
                first,
                lambda: dialect.finish(
                    job.id, claims=claimed.claims, worker="w", attempts=1, result=None, keep=60.0, frees_key=True
                ),
            )
            for key in ("0", "b", "z"):
                assert note.using(key=key, connection=second).enqueue(number=1).created
                assert note.using(key=f"{key} too").enqueue(number=1).created
            assert note.using(key="c", connection=first).enqueue(number=1).created
        second.commit()
        first.commit()
        again = note.using(key="b", connection=first).enqueue(number=1)
        assert again.created is False
        first.commit()
    assert site.job(again.id).duplicates == 1
    wait_for(lambda: note.using(key="finished").enqueue(number=1).created, within=5)


@sizes(Size(2, 50, 2), Size(4, 500, 4))
def test_a_file_that_somebody_else_keeps_locked(site: Site[Program], size: Size) -> None:
    """Again and again for most of the time: producers and tasks see no error. Then for three leases: a task learns that
    its claim may be lost, nothing else begins, and all goes on when the file is free."""
    if site.db.locks_rows:
        pytest.skip("there is more than one writer")
    hold, pause = (0.6, 0.3) if size.workers == 2 else (3.0, 2.0)
    through = threading.Event()

    def write_most_of_the_time() -> None:
        with closing(of_driver(site.app)) as connection:
            connection.isolation_level = None
            while not through.is_set():
                connection.execute("BEGIN IMMEDIATE")
                through.wait(hold)
                connection.execute("COMMIT")
                through.wait(pause)

    workers = site.start_many(size.workers, concurrency=2, lease=LEASE if size.workers == 2 else 4.0)
    writer = threading.Thread(target=write_most_of_the_time)
    writer.start()
    try:
        producers = in_processes(site.db.url, producers=size.producers, jobs=size.jobs)
        for producer in producers:
            _, errors = producer.communicate(timeout=300)
            assert (producer.returncode, errors) == (0, "")
        jobs = list(site.statuses())
        assert len(jobs) == size.producers * size.jobs
        site.wait_ended(jobs, within=60)
    finally:
        through.set()
        writer.join()
    nothing_lost_nothing_twice(site, jobs, crashed=False)

    job = site.program.watch.enqueue("end")
    site.wait_started(job.id)
    waiting = site.program.note.using(delay=0.5).enqueue(number=1)
    lease = LEASE if size.workers == 2 else 4.0
    with site.transaction() as other:
        other.answer(Execute("UPDATE dibs_chores SET next_at = next_at", {}))
        wait_for(lambda: site.diary.entries("lost", job=job.id), within=2 * lease + 2, what="the task to be told")
        holds(lambda: not site.diary.starts()[waiting.id], during=lease)
    assert waiting.join(timeout=20) == 1
    site.open("end")
    ended = site.wait_ended(job.id)[0]
    assert (ended.status, ended.attempts, ended.crashes) == ("done", 1, 0)
    assert all(worker.alive for worker in workers)
    assert not [line for worker in workers for line in worker.complaints() if "Traceback" in line], json.dumps(jobs[:1])
