"""The database goes away and comes back: stopped, killed, or only its sessions. Servers of the tests' own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, Unavailable, running

from conftest import wait_for
from databases import NAMES, Database
from dibs import migrations
from dibs.errors import DatabaseUnavailable
from worker.harness import LEASE, Site, holds
from worker.program import Program

#: What is committed is in the system's hands then, so a killed server has it when it comes back.
KEPT_BY_THE_SYSTEM = {
    "postgres": {"synchronous_commit": "on"},
    "mysql": {"innodb_flush_log_at_trx_commit": "2"},
    "mariadb": {"innodb_flush_log_at_trx_commit": "2"},
}

SESSIONS = {
    "postgres": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": """
        SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()
    """,
}
END_SESSION = {"postgres": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}


@pytest.fixture(scope="module", params=[name for name in NAMES if name in KEPT_BY_THE_SYSTEM])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of these tests' own, with dibs' tables in its database."""
    kind: str = request.param
    try:
        with running(kind, options=KEPT_BY_THE_SYSTEM[kind]) as server:
            database = Database(kind, server.url)
            connection = database.connect()
            migrations.migrate(database.app().dialect, connection)
            connection.close()
            yield server
    except Unavailable as unavailable:
        pytest.skip(str(unavailable))


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site[Program]]:
    server.start()
    database = Database(server.kind, server.url)
    database.empty()
    with Site(database, tmp_path, Program) as site:
        yield site
    server.start()


def test_an_outage_of_three_leases(site: Site[Program], server: Server) -> None:
    """Every lease is past while the work goes on: nothing is run again, what ended meanwhile is settled, what runs
    is renewed, and each worker says once that the database went and once that it came."""
    site.start_many(2, concurrency=2, lease=LEASE)
    ends, stays = site.program.gate.enqueue("during"), site.program.agate.enqueue("after")
    failing = site.program.gate.enqueue("during")
    site.wait_started(ends.id, stays.id, failing.id)

    server.stop()
    holds(lambda: all(worker.alive for worker in site.workers), during=2 * LEASE)
    with pytest.raises(DatabaseUnavailable):
        site.program.note.enqueue(number=1)
    site.open("during")
    holds(lambda: all(worker.alive for worker in site.workers), during=LEASE)
    server.start()

    late = site.program.note.enqueue(number=1)
    site.wait_ended([ends.id, failing.id, late.id], within=10)
    holds(lambda: site.statuses()[stays.id] == "running", during=2 * LEASE)
    site.open("after")
    jobs = site.wait_ended([ends.id, failing.id, stays.id, late.id])
    assert {(job.status, job.attempts, job.claims, job.crashes) for job in jobs} == {("done", 1, 1, 0)}
    assert set(site.diary.starts().values()) == {1}
    for worker in site.workers:
        assert [line.split(",")[0].split(" after")[0] for line in worker.complaints()] == [
            "WARNING the database can't be used",
            "WARNING the database is back",
        ]


def test_a_server_that_is_down_when_the_worker_starts(site: Site[Program], server: Server) -> None:
    """The worker waits for it, says so once, and works when it is there."""
    job = site.program.note.enqueue(number=3)
    server.stop()
    worker = site.launch()
    wait_for(worker.complaints, what="a word about the server")
    holds(lambda: worker.alive and len(worker.complaints()) == 1, during=2.0)
    server.start()
    assert job.join(timeout=10) == 3
    assert len(worker.complaints()) == 2
    assert len(worker.lines("the database is back")) == 1


def test_a_worker_that_is_stopped_while_the_server_is_down(site: Site[Program], server: Server) -> None:
    """It does not wait for the server: it leaves when its time of grace is over, and its job comes back later."""
    worker = site.start(grace=0.5)
    job = site.program.gate.enqueue("end")
    site.wait_started(job.id)
    server.stop()
    site.open("end")
    wait_for(lambda: worker.lines("can't be used"), what="the worker to notice")
    worker.terminate()
    assert worker.wait(8) == 0
    server.start()
    site.start()
    (ended,) = site.wait_ended(job.id)
    assert (ended.status, ended.attempts, ended.crashes) == ("done", 2, 1)


def test_sessions_that_are_ended_during_work(site: Site[Program]) -> None:
    """An administrator ends sessions as they please: nothing is lost, and nothing runs twice."""
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=0.005) for _ in range(1_500))]
    workers = site.start_many(2, concurrency=4)
    ended = 0

    def all_ran() -> bool:
        nonlocal ended
        ended += end_sessions(site)
        return len(site.diary.entries("end")) >= len(jobs)

    wait_for(all_ran, within=30, every=0.25, what="the jobs to run")
    records = site.wait_ended(jobs)
    assert ended > 10
    assert {(job.status, job.attempts, job.crashes) for job in records} == {("done", 1, 0)}
    assert site.diary.starts() == dict.fromkeys(jobs, 1)
    assert all(worker.alive for worker in workers)


def end_sessions(site: Site[Program]) -> int:
    """End all sessions in this database but the one that asks; return how many there were."""
    sessions = site.db.fetch(SESSIONS[site.db.kind])
    for (session,) in sessions:
        with contextlib.suppress(Exception):  # it may have gone by itself
            site.db.execute(END_SESSION[site.db.kind].format(session))
    return len(sessions)


def test_a_server_that_is_killed_during_work(site: Site[Program], server: Server) -> None:
    """Killed (-9) in the midst of 2,000 jobs and started again: all of them end, each was started once, since what
    a worker holds is its own although the answer was lost."""
    jobs = [job.id for job in site.app.enqueue_many(site.program.nap.call(seconds=0.003) for _ in range(2_000))]
    site.start_many(2, concurrency=4)
    wait_for(lambda: len(site.diary.starts()) > 300, every=0.002, what="the workers to be in full swing")
    server.kill()
    assert len(site.diary.starts()) < len(jobs), "it was killed in the midst of it"
    server.start()
    records = site.wait_ended(jobs, within=30)
    assert {job.status for job in records} == {"done"}
    assert site.diary.starts() == dict.fromkeys(jobs, 1)
    assert {(job.attempts, job.crashes) for job in records} == {(1, 0)}
