"""Behind PgBouncer in transaction mode: a session on the server serves whoever comes, one transaction at a time."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from servers import Server, Unavailable, running

from commands import Command
from conftest import wait_for
from databases import NAMES, Database
from dibs.worker.wakeups import Wakeups
from worker.harness import Site
from worker.program import Program

pytestmark = pytest.mark.skipif("postgres" not in NAMES, reason="there is no PostgreSQL")

#: Sessions that the pooler has on the server.
POOL = 3
WORKERS = 4
JOBS = 500

#: What PgBouncer itself sets on a session for the client that it lends it to.
THE_POOLERS_OWN = {"application_name", "client_encoding", "DateStyle", "IntervalStyle", "standard_conforming_strings"}

#: Prepared statements are the client's own affair in old versions, and in new ones that are set so.
OPTIONS = {"default_pool_size": str(POOL), "max_prepared_statements": "0", "admin_users": "dibs"}


@contextmanager
def pooler(db: Database, **options: str) -> Iterator[tuple[Server, Database]]:
    """A pooler before the server of this database, and the database as it is seen through it."""
    try:
        with running("pgbouncer", options={"server": db.url, **OPTIONS, **options}) as server:
            theirs = urlsplit(server.url)
            through = Database("postgres", urlunsplit(theirs._replace(path=urlsplit(db.url).path)))
            yield server, through
            through.close()
    except Unavailable as unavailable:
        if os.environ.get("CI", "") not in ("", "0", "false"):
            pytest.fail(str(unavailable))
        pytest.skip(str(unavailable))


@pytest.fixture
def db(_databases: Callable[[str], Database]) -> Database:
    database = _databases("postgres")
    database.empty()
    return database


def left_on_sessions(url: str) -> list[tuple[object, ...]]:
    """Return what all the pooler's sessions have kept: settings, prepared statements, what is listened to, cursors,
    locks. All at once, so that each answers for itself."""
    found: list[tuple[object, ...]] = []
    with ExitStack() as stack:
        pids = set()
        for _ in range(POOL):
            connection = stack.enter_context(psycopg.connect(url, prepare_threshold=None))
            rows = connection.execute("SELECT pg_backend_pid()").fetchall()  # begins its transaction, and keeps it open
            pids.add(rows[0][0])
            settings = connection.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'").fetchall()
            found += [row for row in settings if row[0] not in THE_POOLERS_OWN]
            for kept in (
                "SELECT 'prepared', name FROM pg_prepared_statements",
                "SELECT 'listens', * FROM pg_listening_channels()",
                "SELECT 'cursor', name FROM pg_cursors WHERE is_holdable",
                "SELECT 'lock', locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
                "SELECT 'table', relname FROM pg_class WHERE relpersistence = 't'",
            ):
                found += connection.execute(kept).fetchall()
        assert len(pids) == POOL
    default = psycopg.connect(url, prepare_threshold=None).execute("SHOW TimeZone").fetchall()
    return [row for row in found if row != ("TimeZone", *default[0])]


def lent(server: Server) -> int:
    """Return how many sessions clients of the pooler have at this moment."""
    console = urlunsplit(urlsplit(server.url)._replace(path="/pgbouncer"))
    with psycopg.connect(console, autocommit=True, prepare_threshold=None) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW POOLS")
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sum(row["sv_active"] for row in rows if row["database"] != "pgbouncer")


def test_500_jobs_through_a_pooler_that_restarts(db: Database, tmp_path: Path) -> None:
    """Four workers and three sessions: each job is run once, no statement clashes, and nothing is left on a session.

    The pooler is restarted half-way. Workers hear nothing, say so once and poll; those that idle hold no session.
    """
    with pooler(db) as (server, through):
        through.app().migrate()
        with Site(through, tmp_path, Program) as site:
            workers = site.start_many(WORKERS, concurrency=4)
            tasks = (site.program.note, site.program.anote)
            half = JOBS // 2
            ids = [job.id for job in site.app.enqueue_many(tasks[n % 2].call(number=n) for n in range(half))]
            wait_for(lambda: len(site.diary.entries("end")) > half // 5)
            server.stop("immediate")
            server.start()
            # Each a transaction of its own, half of them with a key.
            ids += [
                tasks[n % 2].using(key=f"key {n}" if n % 4 < 2 else None).enqueue(number=n).id
                for n in range(half, JOBS)
            ]
            jobs = site.wait_ended(ids)
            assert Counter((job.status, job.attempts, job.crashes) for job in jobs) == {("done", 1, 0): JOBS}
            assert site.diary.starts() == Counter(ids), "each job was run once"

            # That nobody hears anything is found out, said once, and no reason to be late.
            for worker in workers:
                assert len(worker.lines("notifications are not heard")) == 1
            late = site.program.note.enqueue(number=JOBS)
            site.wait_started(late.id, within=2.0)
            site.wait_ended(late.id)

            wait_for(lambda: lent(server) == 0, within=5, what="the idle workers to hold no session")
            for worker in workers:
                worker.terminate()
            assert [worker.wait() for worker in workers] == [0] * WORKERS
            for word in ("prepared", "bind", "transaction block", "Traceback"):
                assert word not in site.logs()
        assert left_on_sessions(through.url) == []


def test_verify_through_a_pooler(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """`dibs verify` finds all promises kept behind a pooler, says that it stands there, and leaves nothing either."""
    # Its checks go on side by side, and some hold a transaction open while they look over another session.
    with pooler(db, default_pool_size="8") as (_, through):
        ended = Command(capsys)("verify", "--url", through.url, "--json")
        checks = {check["name"]: check for check in ended.json["checks"]}
        assert (ended.code, [name for name in checks if checks[name]["outcome"] == "FAIL"]) == (0, [])
        assert "a pooler lends the sessions" in checks["server"]["evidence"]
        doctor = Command(capsys)("doctor", "--url", through.url, "--json")
        assert (doctor.code, [each["check"] for each in doctor.json["checks"] if each["why"]]) == (5, ["pooler"])
        assert left_on_sessions(through.url) == []


def test_a_pooler_that_keeps_sessions_is_listened_through(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """In session mode a client has its session to itself: notifications are heard through it."""
    heard = threading.Event()
    with pooler(db, pool_mode="session", default_pool_size="10") as (_, through):
        app = through.app()

        def woke(queue: str | None, moment: object) -> None:
            if queue == "told":
                heard.set()

        wakeups = Wakeups(app.store, woke, lambda: pytest.fail("it hears nothing"))

        def told() -> bool:
            app.store.run(lambda: app.dialect.tell(["told"]))
            return heard.wait(0.1)

        with caplog.at_level(logging.WARNING, logger="dibs"):
            wakeups.start()
            try:
                wait_for(told)
            finally:
                wakeups.close()
                app.close()
        assert not caplog.records
