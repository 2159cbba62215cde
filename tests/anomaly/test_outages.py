"""The database goes away and comes back in each way there is: a worker notices, waits, and goes on as if nothing was.

What takes a minute in the stories takes seconds here, with shorter leases; `scripts/failover --outages` runs it at full length.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faults.proxy import Lines, Weather
from servers import Server

from anomaly.own_server import BOTH, ONE, Refusal, at_port, own_server
from conftest import wait_for
from databases import Database
from dibs.errors import ReadOnlyDatabase
from worker.harness import Site, WorkerProcess, holds
from worker.program import Program
from worker.test_outage import END_SESSION, SESSIONS

#: 10 is full length: an outage of a minute, leases of up to 90 s.
SCALE = float(os.environ.get("DIBS_TEST_OUTAGES_SCALE", "1"))
#: 10 s on a machine that has nothing else to do.
SOON = 10.0 if SCALE > 1 else 20.0

LOST, BACK = "WARNING the database can't be used", "WARNING the database is back"

SET_READ_ONLY = {
    "postgres": ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"),
    "mysql": ("SET GLOBAL super_read_only = ON",),
    "mariadb": ("SET GLOBAL read_only = ON",),
}
SET_WRITABLE = {
    # Over the very sessions that may only read now: what is said of the system is no write.
    "postgres": ("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"),
    "mysql": ("SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF"),
    "mariadb": ("SET GLOBAL read_only = OFF",),
}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with own_server(request.param) as server:
        yield server


@pytest.fixture
def lines(server: Server) -> Iterator[Lines]:
    """A proxy before the server, with a line for each of two workers."""
    server.start()
    with Lines("127.0.0.1", server.port, 2) as lines:
        yield lines


@pytest.fixture
def site(server: Server, tmp_path: Path) -> Iterator[Site[Program]]:
    server.start()
    database = Database(server.kind, server.user_url if server.kind == "mariadb" else server.url)
    database.empty()
    with Site(database, tmp_path, Program) as site:
        yield site
    database.close()


def start_behind(site: Site[Program], lines: Lines, line: int, **settings: Any) -> WorkerProcess:
    """Start a worker that reaches the database over this line of the proxy."""
    direct, site.db.url = site.db.url, at_port(site.db.url, lines.listening(line))
    try:
        return site.start(**settings)
    finally:
        site.db.url = direct


def says(worker: WorkerProcess) -> list[str]:
    """Return the beginnings of what it complained of, in order."""
    return [line.split(",")[0].split(" after")[0] for line in worker.complaints()]


@pytest.mark.parametrize("server", ONE, indirect=True)
def test_an_idle_worker_takes_jobs_after_every_loss(site: Site[Program], server: Server, lines: Lines) -> None:
    """BR-38: after a restart of the server, after each of its sessions was ended, and after a network that swallowed
    all it was sent, it takes the next job, without a restart of its own; it says once that the database went, and once
    that it came."""
    worker = start_behind(site, lines, 0, lease=6 * SCALE)

    server.stop("immediate")
    wait_for(lambda: says(worker) == [LOST], within=10, what="the worker to notice the restart")
    server.start()
    job = site.program.note.enqueue(number=1)
    site.wait_started(job.id, within=SOON)
    wait_for(lambda: says(worker) == [LOST, BACK], what="a word that it is back")

    site.app.close()  # so that these are the worker's, but for the one that asks
    for (session,) in site.db.fetch(SESSIONS[site.db.kind]):
        with suppress(Exception):  # it may have gone by itself
            site.db.execute(END_SESSION[site.db.kind].format(session))
        job = site.program.note.enqueue(number=session)
        site.wait_started(job.id, within=SOON)
    assert says(worker) == [LOST, BACK], "a session is made anew without a word"

    lines.change(0, Weather.BLACK_HOLE)
    began = time.monotonic()
    job = site.program.note.enqueue(number=9)
    wait_for(lambda: says(worker) == [LOST, BACK, LOST], within=30, what="the worker to notice the silence")
    while time.monotonic() < began + 6 * SCALE:
        assert worker.alive
        time.sleep(0.1)
    lines.change(0, Weather.FAIR)
    site.wait_started(job.id, within=3 * SOON)
    wait_for(lambda: says(worker) == [LOST, BACK, LOST, BACK], what="a word that it is back")
    assert worker.alive


@pytest.mark.parametrize("server", ONE, indirect=True)
def test_a_database_that_refuses(site: Site[Program], lines: Lines) -> None:
    """BR-39: unreachable while jobs run and while orphans wait to be taken back: the worker stays, tries about once a
    second and not with every thread, says so once; what ended meanwhile is settled from the one start it had, and all
    orphans come back."""
    dead = site.start(lease=2.0, concurrency=250, queues=["orphans"], ahead=0)
    naps = site.program.anap.using(queue="orphans").call(seconds=60.0)
    orphans = [job.id for job in site.app.enqueue_many([naps] * 250)]
    worker = start_behind(site, lines, 0, lease=9 * SCALE, concurrency=5, queues=["default"])
    running = [job.id for job in site.app.enqueue_many([site.program.nap.call(seconds=2.0 * SCALE)] * 5)]
    site.wait_started(*running, *orphans)
    dead.kill()

    with Refusal() as refusal:
        healthy, lines.port = lines.port, refusal.port
        lines.cut(0)
        began = time.monotonic()
        holds(lambda: worker.alive, during=6 * SCALE)
        lines.port = healthy
    later = [at for at in refusal.tries if at > began + 2]
    assert 1 <= len(later) <= 1.3 * (6 * SCALE - 2) + 1

    done = site.wait_ended(running, within=SOON)
    assert {(job.status, job.attempts, job.claims, job.crashes) for job in done} == {("done", 1, 1, 0)}
    assert {site.diary.starts()[job_id] for job_id in running} == {1}
    wait_for(lambda: not site.running() & set(orphans), within=4 * SOON, what="the orphans to be taken back")
    assert {site.statuses()[job_id] for job_id in orphans} == {"ready"}
    own = [said for said in says(worker) if "lease of" not in said]
    assert own == [LOST, BACK]


@pytest.mark.parametrize("server", BOTH, indirect=True)
def test_a_server_that_takes_no_writes_for_a_while(site: Site[Program], server: Server) -> None:
    """BR-40: what was the primary is read-only, as after a failover. The worker takes it for the wrong server, and
    settles what ended as soon as writes are taken again: each job was started once, and no number of its row grows in
    the meantime. A worker that starts just then waits. An app's enqueue is refused in plain words, and the next is not."""
    worker = site.start(lease=6 * SCALE, concurrency=10)
    jobs = [job.id for job in site.app.enqueue_many([site.program.nap.call(seconds=1.0 * SCALE)] * 10)]
    site.wait_started(*jobs)
    admin = Database(server.kind, server.url)
    for statement in SET_READ_ONLY[server.kind]:
        admin.execute(statement)
    with pytest.raises(ReadOnlyDatabase, match="point dibs at"):
        wait_for(lambda: site.program.note.enqueue(number=1) and None, within=5)
    late = site.launch(lease=6 * SCALE)
    wait_for(lambda: len(site.diary.entries("end")) >= 10, within=10 * SCALE, what="the jobs to end")
    wait_for(lambda: says(late) == [LOST], what="a worker that starts now to wait")
    before = site.db.fetch("SELECT id, status, attempts, claims FROM dibs_jobs ORDER BY id")
    holds(lambda: worker.alive, during=2 * SCALE)
    assert site.db.fetch("SELECT id, status, attempts, claims FROM dibs_jobs ORDER BY id") == before
    for statement in SET_WRITABLE[server.kind]:
        admin.execute(statement)
    admin.close()

    records = site.wait_ended(jobs, within=SOON)
    assert {(job.status, job.attempts, job.claims, job.crashes) for job in records} == {("done", 1, 1, 0)}
    assert {site.diary.starts()[job_id] for job_id in jobs} == {1}
    site.wait_ended(site.program.note.enqueue(number=2).id, within=SOON)
    for each in (worker, late):
        wait_for(lambda: says(each) == [LOST, BACK], what="a word that it is back")


@pytest.mark.parametrize("server", ONE, indirect=True)
def test_a_network_that_is_silent_for_three_leases(site: Site[Program], lines: Lines) -> None:
    """Every lease is past while the work goes on, and nobody saw a connection end: nothing is run again."""
    lease = 2.5 * SCALE
    workers = [start_behind(site, lines, line, lease=lease, concurrency=2) for line in (0, 1)]
    jobs = [site.program.gate.enqueue("during").id, *(site.program.gate.enqueue("after").id for _ in range(3))]
    site.wait_started(*jobs)
    for line in (0, 1):
        lines.change(line, Weather.BLACK_HOLE)
    site.open("during")
    holds(lambda: all(worker.alive for worker in workers), during=3 * lease)
    for line in (0, 1):
        lines.change(line, Weather.FAIR)
    site.wait_ended(jobs[0], within=SOON)
    holds(lambda: set(jobs[1:]) <= site.running(), during=2 * lease)
    site.open("after")
    records = site.wait_ended(jobs)
    assert {(job.status, job.attempts, job.claims, job.crashes) for job in records} == {("done", 1, 1, 0)}
    assert site.diary.starts() == dict.fromkeys(jobs, 1)
    assert [says(worker) for worker in workers] == [[LOST, BACK]] * 2
