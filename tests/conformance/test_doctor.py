"""`dibs doctor` finds each fault that is staged here, by its check and by no other; what it says to paste mends it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from conftest import wait_for
from databases import NAMES, Database, migrated, new_database
from dibs import Dibs
from dibs.doctor.examination import CHECKS, OF_TABLES, examine
from dibs.findings import Finding, Level, Limits, Report
from dibs.ops import Execute, Fetch

PAST, FUTURE = "2020-01-01 00:00:00.000", "2091-01-01 00:00:00.000"

#: A queue's row, and a worker's, with what they must have.
JOB = (
    "INSERT INTO dibs_jobs (queue, task, payload, run_at, created_at, {}) VALUES ('q', 't', '{{}}', '"
    + PAST
    + "', '"
    + PAST
    + "', {})"
)
WORKER = (
    "INSERT INTO dibs_workers (worker, host, pid, version, state, tasks, slots, started_at, seen_at) "
    "VALUES ('w', 'h', 1, '1', 'working', '[\"t\"]', '[]', '" + PAST + "', '" + FUTURE + "')"
)
CLEAR = ("DELETE FROM dibs_jobs", "DELETE FROM dibs_workers")

#: A fault: the check that is to find it, what stages it, words of what is found.
Fault = tuple[str, list[str], str]


def job(columns: str, values: str) -> str:
    return JOB.format(columns, values)


#: Faults of the queue itself, with a worker that serves all and knows the task `t` alone.
IN_QUEUE: list[Fault] = [
    ("unknown tasks", [job("status", "'ready'").replace("'t'", "'mystery'")], "mystery"),
    (
        "expired leases",
        [job("status, claims, attempts, lease, lease_owner, lease_until", f"'running', 1, 1, 60, 'gone', '{PAST}'")],
        "1 leases of gone",
    ),
    (
        "lease length",
        [
            job(
                "status, attempts, crashes, lease, started_at, finished_at, expires_at",
                f"'done', 2, 1, 60, '{PAST}', '2020-01-01 00:05:00.000', '{FUTURE}'",
            )
        ],
        "up to 300 s with a lease of 60 s",
    ),
    (
        "failures",
        [job("status, attempts, expires_at", f"'failed', 12, '{FUTURE}'")] * 3,
        "3 of these failed",
    ),
    (
        "failures",
        [job("status, attempts", "'ready', 1").replace(f"'{PAST}'", f"'{FUTURE}'", 1)] * 3,
        "3 wait to be tried again",
    ),
    ("retention", [job("status, expires_at", f"'done', '{PAST}'")], "1 finished rows"),
]

#: Faults of the tables, by what the database speaks: what is found says how to mend them.
IN_TABLES: dict[str, list[tuple[list[str], str]]] = {
    "sqlite": [
        (["DROP INDEX dibs_jobs_ready"], "dibs_jobs_ready is missing"),
        (["DROP INDEX dibs_jobs_ready", "CREATE INDEX dibs_jobs_ready ON dibs_jobs (queue) WHERE status = 'ready'"], "is on (queue)"),
        (["DROP INDEX dibs_jobs_finished", "CREATE INDEX dibs_jobs_finished ON dibs_jobs (expires_at)"], "lost its condition"),
        (["ALTER TABLE dibs_jobs DROP COLUMN cancel_reason"], "cancel_reason is missing"),
    ],
    "postgres": [
        (["DROP INDEX dibs_jobs_ready"], "dibs_jobs_ready is missing"),
        (["DROP INDEX dibs_jobs_ready", "CREATE INDEX dibs_jobs_ready ON dibs_jobs (queue) WHERE status = 'ready'"], "is on (queue)"),
        (["UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST('dibs_jobs_ready' AS regclass)"], "is invalid"),
        (["ALTER TABLE dibs_jobs DROP COLUMN cancel_reason"], "cancel_reason is missing"),
    ],
    "mysql": [
        (["DROP INDEX dibs_jobs_ready ON dibs_jobs"], "dibs_jobs_ready is missing"),
        (["DROP INDEX dibs_jobs_ready ON dibs_jobs", "CREATE INDEX dibs_jobs_ready ON dibs_jobs (status, queue)"], "is on (status, queue)"),
        (["ALTER TABLE dibs_jobs ALTER INDEX dibs_jobs_ready /*!80000 INVISIBLE */ /*M!100600 IGNORED */"], "is invalid or hidden"),
        (["ALTER TABLE dibs_jobs DROP COLUMN cancel_reason"], "cancel_reason is missing"),
    ],
}  # fmt: skip

CHANGED = {
    "postgres": ("ALTER TABLE dibs_jobs ALTER COLUMN crashes TYPE {}", "bigint", "integer"),
    "mysql": ("ALTER TABLE dibs_jobs MODIFY crashes {} NOT NULL DEFAULT 0", "bigint", "int"),
}


@pytest.fixture(params=NAMES)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of this test's own, whose tables it may break."""
    yield from migrated(request.param, tmp_path)


def bad(report: Report) -> dict[str, Finding]:
    """Return what is not well, by check."""
    return {each.check: each for each in report.checks if each.level in (Level.WARN, Level.FAIL)}


def look(db: Database, limits: Limits | None = None, **how: Any) -> dict[str, Finding]:
    return bad(examine(db.app(), limits, **how))


def test_faults_of_the_queue(own: Database) -> None:
    """What is not served, not known, past its lease, failing, tried again or kept too long is found, each alone."""
    assert look(own) == {}
    own.execute(job("status", "'ready'"))
    assert list(look(own)) == ["unserved queues"]
    assert "no worker is registered for q" in look(own)["unserved queues"].found
    own.app().pause("q")
    assert look(own) == {}
    own.app().resume("q")
    for check, staged, words in IN_QUEUE:
        for statement in CLEAR:
            own.execute(statement)
        own.execute(WORKER)
        for statement in staged:
            own.execute(statement)
        found = look(own, Limits(enough=3))
        assert list(found) == [check]
        assert words in found[check].found
        assert found[check].why
        assert found[check].fix
    if own.locks_rows:
        assert "connections" in look(own, Limits(busy=0.0))


def test_faults_of_the_tables(own: Database) -> None:
    """An index that is missing, of no use or another one, a column that is gone: found, and mended by what is said."""
    assert look(own) == {}
    for staged, words in IN_TABLES[own.kind]:
        for statement in staged:
            own.execute(statement)
        found = look(own)
        assert words in found["tables"].found
        if "dibs_jobs_ready" in words or "is on" in words or "is invalid" in words:
            assert "claim plan" in found, words
        # Where a statement names the index that it goes by, what can't be asked without it says so.
        others = [each for check, each in found.items() if check not in ("tables", "claim plan")]
        assert not others or own.kind == "mysql"
        assert all("could not be asked" in each.found and "tables" in each.fix for each in others)
        for statement in found["tables"].fix.split("; "):
            own.execute(statement)
        assert look(own) == {}, words
    if own.kind in CHANGED:
        statement, other, usual = CHANGED[own.kind]
        own.execute(statement.format(other))
        found = look(own)
        assert [*found] == ["tables"]
        assert f"dibs_jobs.crashes is {other}, not {usual}" in found["tables"].found
        own.execute(statement.format(usual))
        assert look(own) == {}
    own.execute("UPDATE dibs_meta SET value = '2' WHERE name = 'schema'")
    own.execute("DROP TABLE dibs_workers")
    found = look(own)
    assert found["schema"].level is Level.WARN
    assert "dibs migrate" in found["schema"].fix
    assert {each.level for each in found.values()} == {Level.WARN}


@pytest.mark.parametrize("name", NAMES)
def test_no_tables(name: str, tmp_path: Path) -> None:
    """Before the first migration it says so, and still looks at the server."""
    if name == "sqlite":
        report = examine(Dibs(f"sqlite:///{tmp_path / 'new.db'}"))
    else:
        with new_database(name) as url:
            report = examine(Dibs(url))
    assert list(bad(report)) == ["schema"]
    assert report.worst is Level.FAIL
    assert [each.check for each in report.checks] == [*CHECKS, *OF_TABLES]
    assert {each.level for each in report.checks if each.check in OF_TABLES} == {Level.SKIPPED}


def test_clock(own: Database) -> None:
    """A machine whose clock is not the database's is told so; where both are one there is nothing to tell."""
    found = look(own, clock=lambda: time.time() + 5)
    assert list(found) == (["clock"] if own.locks_rows else [])
    assert not found or "behind" in found["clock"].found


def test_old_transaction(db: Database) -> None:
    """Who holds an old snapshot is named, with the statement that ends it."""
    if not db.locks_rows:
        pytest.skip("a reader of a file holds up nobody's cleaning but a checkpoint's")
    holder = db.connect()
    holder.begin()
    try:
        number = holder.answer(Fetch("SELECT pg_backend_pid(), pg_current_xact_id()" if db.kind == "postgres" else "SELECT CONNECTION_ID()", {}))[0][0]  # fmt: skip
        holder.answer(Fetch("SELECT id FROM dibs_jobs FOR UPDATE", {}))
        found = wait_for(lambda: look(db, Limits(snapshot=0.01)).get("old snapshots"), what="it to be old")
        assert found is not None
        assert f"session {number}, " in found.found
        assert str(number) in found.fix
        assert "old snapshots" not in look(db)
    finally:
        holder.rollback()
        holder.close()


def test_prepared_transaction(own: Database) -> None:
    """A prepared transaction whose session has gone is found, and how to end it."""
    if not own.locks_rows:
        pytest.skip("it has no two-phase commit")
    holder = own.connect()
    name = f"dibs-{time.time_ns()}"
    write = job("status", "'ready'").replace(PAST, FUTURE)
    begin, end = (["BEGIN"], [f"PREPARE TRANSACTION '{name}'"])
    if own.kind == "mysql":
        begin, end = [f"XA START '{name}'"], [f"XA END '{name}'", f"XA PREPARE '{name}'"]
    for statement in (*begin, write, *end):
        holder.answer(Execute(statement, {}))
    holder.close()
    try:

        def seen() -> Finding | None:
            found = look(own, Limits(snapshot=0.01)).get("old snapshots")
            return found if found is not None and "ROLLBACK" in found.fix else None

        found = wait_for(seen, what="it to be seen without a session")
        assert found is not None
        if own.kind == "postgres":
            assert (f"prepared transaction {name}, " in found.found, found.fix) == (True, f"ROLLBACK PREPARED '{name}'")
        else:
            assert "XA RECOVER" in found.fix
    finally:
        rollback = f"ROLLBACK PREPARED '{name}'" if own.kind == "postgres" else f"XA ROLLBACK '{name}'"
        wait_for(lambda: own.execute(rollback) <= 0, what="it to be rolled back")
    assert look(own) == {}


def test_history_that_grows(own: Database) -> None:
    """Where old versions pile up, whoever they are kept for is named, however young."""
    if own.kind != "mysql":
        pytest.skip("there what is old is found by its age, and by dead rows")
    holder = own.connect()
    holder.answer(Execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", {}))
    holder.answer(Execute("START TRANSACTION WITH CONSISTENT SNAPSHOT", {}))
    try:
        for _ in range(60):
            own.execute("UPDATE dibs_meta SET value = CONCAT(value, ' ')")
            own.execute("UPDATE dibs_meta SET value = TRIM(value)")
        found = wait_for(lambda: look(own, Limits(history=100)).get("old snapshots"), what="the history to be long")
        assert found is not None
        # Where other tests have older ones on this server it is one of theirs.
        assert re.search(r"session \d+, .*, since \d+ s; history list of \d+", found.found)
        assert "KILL " in found.fix or "XA ROLLBACK" in found.fix
    finally:
        holder.rollback()
        holder.close()


def test_deadlocks(own: Database) -> None:
    """Those that the server has counted are told, and too many are a warning."""
    if not own.locks_rows:
        pytest.skip("one writer at a time: there are none")

    def counted() -> int:
        (found,) = (each for each in examine(own.app()).checks if each.check == "deadlocks")
        return int(found.found.partition(" in ")[0].replace(",", ""))

    before = counted()
    own.execute("CREATE TABLE ledger (id integer PRIMARY KEY, number integer)")
    own.execute("INSERT INTO ledger VALUES (1, 0), (2, 0)")
    two = [own.connect(), own.connect()]
    undone: list[Exception] = []

    def write(who: int, row: int) -> None:
        try:
            two[who].answer(Execute("UPDATE ledger SET number = 1 WHERE id = :id", {"id": row}))
        except Exception as error:
            undone.append(error)
            two[who].rollback()

    for who in (0, 1):
        if own.kind == "postgres":
            two[who].answer(Execute("SET deadlock_timeout = '20ms'", {}))
        two[who].begin()
        write(who, who + 1)
    threads = [threading.Thread(target=write, args=(who, 2 - who)) for who in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for connection in two:
        connection.close()
    assert len(undone) == 1
    wait_for(lambda: counted() > before, what="it to be counted")
    found = look(own, Limits(deadlocks=1e-9))
    assert "deadlocks" in found
    assert "lock rows in one order" in found["deadlocks"].fix


def test_time_zones_that_are_wanted(own: Database) -> None:
    """Where the code around it asks the server for times in a zone, and the server knows none."""
    app = own.app()
    app.wants_zones = True
    found = bad(examine(app))
    empty = own.kind == "mysql" and own.fetch("SELECT CONVERT_TZ('2020-01-01', 'UTC', 'Europe/Berlin')") == [(None,)]
    assert list(found) == ["time zones"] * empty
    assert not found or "mysql_tzinfo_to_sql" in found["time zones"].fix


def test_settings_of_a_database(own: Database) -> None:
    """Isolation, timeouts, read-only, autovacuum, dead rows, engine: found where this database can have them wrong."""
    if own.kind == "sqlite":
        assert list(bad(examine(Dibs(f"{own.url}?busy_timeout=100&synchronous=normal")))) == ["server", "timeouts"]
        return
    if own.kind == "mysql":
        own.execute("ALTER TABLE dibs_queues ENGINE = MyISAM")
        found = look(own)
        assert list(found) == ["server"]
        own.execute(found["server"].fix)
        assert look(own) == {}
        return
    database = urlsplit(own.url).path.strip("/")
    for setting, value, check in (
        ("default_transaction_isolation", "serializable", "isolation"),
        ("statement_timeout", "900ms", "timeouts"),
        ("default_transaction_read_only", "on", "server"),
    ):
        own.execute(f"ALTER DATABASE {database} SET {setting} = '{value}'")
        found = look(own)
        assert list(found) == [check], setting
        own.execute(f"ALTER DATABASE {database} RESET {setting}")
    own.execute(WORKER)
    own.execute(f"ALTER DATABASE {database} CONNECTION LIMIT 5")
    found = look(own)
    assert list(found) == ["connections"]
    assert "of this database's 5 in use" in found["connections"].found
    own.execute(found["connections"].fix)
    assert look(own) == {}
    own.execute("DELETE FROM dibs_workers")
    own.execute("ALTER TABLE dibs_jobs SET (autovacuum_enabled = false)")
    found = look(own)
    assert list(found) == ["dead rows"]
    own.execute(found["dead rows"].fix)
    assert look(own) == {}
    for _ in range(30):
        own.execute("UPDATE dibs_meta SET value = value")
    if own.name != "postgres14":
        own.fetch("SELECT pg_stat_force_next_flush()")
    dead = wait_for(lambda: look(own, Limits(dead=20)).get("dead rows"), what="the statistics")
    assert dead is not None
    assert "dibs_meta" in dead.found
    own.execute(dead.fix)


def test_account_that_may_not_look(own: Database) -> None:
    """What an account may not see is a warning that says what to grant, and the other checks go on."""
    if own.kind == "sqlite":
        pytest.skip("a file has no accounts")
    user, parts = f"dibs_{time.time_ns() % 10**10}", urlsplit(own.url)
    if own.kind == "postgres":
        own.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
        own.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}")
    else:
        own.execute(f"CREATE USER {user} IDENTIFIED BY 'secret'")
        own.execute(f"GRANT ALL ON {parts.path.strip('/')}.* TO {user}")
    try:
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{user}:secret@{host}"))
        report = examine(Dibs(url))
        found = bad(report)
        assert found.keys() <= {"old snapshots", "deadlocks"}
        fix = found["old snapshots"].fix
        assert fix.startswith("GRANT ")
        own.execute(fix)  # as whoever may
        low = Database(own.name, url)
        assert look(low) == {}
        assert report.worst is Level.WARN
        assert "secret" not in str(report)
        own.execute(WORKER)
        limit = "CONNECTION LIMIT 5" if own.kind == "postgres" else "WITH MAX_USER_CONNECTIONS 5"
        own.execute(f"ALTER {'ROLE' if own.kind == 'postgres' else 'USER'} {user} {limit}")
        found = look(low)
        assert list(found) == ["connections"]
        assert re.match(
            r"\d of this (role|account)'s 5 in use; the registered workers may open 11", found["connections"].found
        )
        own.execute("DELETE FROM dibs_workers")
        if own.kind == "postgres":
            own.execute(f"REVOKE SELECT ON dibs_jobs FROM {user}")
        else:
            own.execute(f"REVOKE ALL ON {parts.path.strip('/')}.* FROM {user}")
            own.execute(f"GRANT ALL ON {parts.path.strip('/')}.dibs_meta TO {user}")
        fixes = {each.fix for each in look(low).values() if "may not be asked" in each.found}
        assert any("SELECT ON" in fix and "dibs_jobs" in fix for fix in fixes), fixes
        assert not any("pg_monitor" in fix or "PROCESS" in fix for fix in fixes), fixes
    finally:
        if own.kind == "postgres":
            own.execute(f"DROP OWNED BY {user}")
        own.execute(f"DROP {'ROLE' if own.kind == 'postgres' else 'USER'} {user}")
