"""`dibs doctor` and `dibs why` on servers that nobody else uses: settings of the whole server, replicas, replication slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from servers import Server

from anomaly.own_server import own_server
from commands import Command
from conformance.test_doctor import WORKER, look
from conftest import wait_for
from databases import NAMES, Database
from dibs import Dibs, Reason
from dibs.bindings.binding import OwnConnection
from dibs.findings import Finding, Level, Limits
from dibs.ops import Execute, Fetch

KINDS = [name for name in ("postgres", "mysql", "mariadb") if name in NAMES]

#: What sets a server up wrongly, the check that is to find it, and words of what it says. What that says to paste mends it.
Fault = tuple[str, str, str]
SETTINGS: dict[str, list[Fault]] = {
    "postgres": [
        ("ALTER SYSTEM SET default_transaction_isolation = 'repeatable read'", "isolation", "repeatable read"),
        ("ALTER SYSTEM SET idle_session_timeout = '2s'", "timeouts", "idle_session_timeout ends dibs'"),
        ("ALTER SYSTEM SET statement_timeout = '900ms'", "timeouts", "statement_timeout ends dibs'"),
        ("ALTER SYSTEM SET autovacuum = off", "dead rows", "autovacuum is off"),
    ],
    "mysql": [
        ("SET GLOBAL binlog_format = STATEMENT", "server", "binlog_format = STATEMENT"),
        ("SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", "isolation", "SERIALIZABLE"),
        ("SET GLOBAL autocommit = OFF", "isolation", "autocommit = OFF"),
        ("SET GLOBAL wait_timeout = 2", "timeouts", "wait_timeout ends a session"),
    ],
}
OF_ONE: dict[str, list[Fault]] = {
    "postgres": [],
    "mysql": [("SET GLOBAL max_execution_time = 900", "timeouts", "max_execution_time cuts dibs' statements short")],
    "mariadb": [
        ("SET GLOBAL max_statement_time = 0.9", "timeouts", "max_statement_time cuts dibs' statements short"),
        ("SET GLOBAL idle_write_transaction_timeout = 2", "timeouts", "idle_write_transaction_timeout ends a session"),
        ("SET GLOBAL innodb_lock_wait_timeout = 0", "timeouts", "innodb_lock_wait_timeout = 0 s"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_and_its_replica(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting that no server should have is found, by its check alone, and mended by what is said; a replica is named
    as such, whoever asks; a server that is as it should be has nothing to be said of."""
    options = {"wal_level": "logical"} if kind == "postgres" else {}
    with own_server(kind, **options) as primary:
        db = Database(kind, primary.url)
        assert look(db) == {}
        for statement, check, words in [*SETTINGS[db.kind], *OF_ONE[kind]]:
            change(db, statement)
            found = wait_for(lambda: look(db), what=statement)
            assert [*found] == [check], (statement, found)
            assert words in found[check].found + found[check].why, (statement, found)
            change(db, *pasted(found[check]))
            db.close()  # a session keeps what it began with
            wait_for(lambda: look(db) == {}, what=f"{found[check].fix} to mend {statement}")
        if db.kind == "mysql":
            settings_that_no_statement_mends(db)
        else:
            slots_that_nobody_reads(db)
        with primary.replica(options=FEEDBACK[db.kind]) as replica:
            db.close()
            of_replica(db, replica, capsys)
            if db.kind == "postgres":
                feedback(db, replica)
        if db.kind == "postgres":
            slot = until(lambda: unread(db), "the replica's slot to be read by nobody")
            assert "keeps dead rows" in slot.found
            change(db, *pasted(slot))
            assert look(db) == {}


#: A replica tells its primary at once what its queries still want to see.
FEEDBACK = {"postgres": {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1"}, "mysql": {}}


def change(db: Database, *statements: str) -> None:
    for statement in statements:
        db.fetch(statement) if statement.startswith("SELECT") else db.execute(statement)
    if db.kind == "postgres":
        db.fetch("SELECT pg_reload_conf()")
        db.fetch("SELECT pg_sleep(0.05)")


def pasted(finding: Finding) -> list[str]:
    """Return what is to be pasted of a fix: there may be words after a comma."""
    return [statement.partition(", ")[0] for statement in finding.fix.split("; ") if statement[:3].isupper()]


def settings_that_no_statement_mends(db: Database) -> None:
    db.execute("SET GLOBAL read_only = ON")
    found = look(db)
    assert {check: each.level for check, each in found.items()} == {"server": Level.FAIL}
    assert "takes no writes (read_only = ON)" in found["server"].found
    assert db.app().why("q").reason is Reason.MISDIRECTED
    db.execute("SET GLOBAL read_only = OFF")
    db.execute("SET GLOBAL max_connections = 10")
    for worker in ("'w'", "'another'"):
        db.execute(WORKER.replace("'w'", worker))
    found = look(db)
    assert [*found] == ["connections"]
    assert "of 10 in use; the registered workers may open 22" in found["connections"].found
    db.execute("SET GLOBAL max_connections = 400")
    db.execute("DELETE FROM dibs_workers")


def slots_that_nobody_reads(db: Database) -> None:
    """One of each kind that keeps WAL; of a logical one the rows of the catalogue, too."""
    change(db, "SELECT pg_create_physical_replication_slot('forgotten', true)")
    change(db, "SELECT pg_create_logical_replication_slot('capture', 'pgoutput')")
    assert look(db) == {}
    many_transactions(db)
    found = until(lambda: unread(db), "nobody to have read it")
    assert "replication slot forgotten (physical), which nobody reads since" in found.found
    assert "replication slot capture (logical), which nobody reads since" in found.found
    assert "keeps dead rows of the catalogue" in found.found
    assert "0 MB of WAL" in found.found, "however little"
    assert "WAL fills the disk" in found.why
    change(db, *pasted(found))
    assert look(db, FEW) == {}


#: As if a few transactions were many, and any WAL too much. (A slot that is read keeps some for a moment.)
FEW = Limits(history=20, wal=0, snapshot=0.1)


def until(condition: Callable[[], Finding | None], what: str) -> Finding:
    found = wait_for(condition, every=0.1, what=what)
    assert found is not None
    return found


def unread(db: Database) -> Finding | None:
    found = look(db, FEW).get("old snapshots")
    return found if found is not None and "which nobody reads" in found.found else None


def many_transactions(db: Database) -> None:
    for _ in range(30):
        db.execute("UPDATE dibs_meta SET value = value")


def of_replica(db: Database, replica: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """To a privileged account, which might write there, and to an ordinary one."""
    urls = [replica.url] if db.kind == "postgres" else [replica.url, replica.user_url]
    for url in urls:
        there = Database(db.name, url)
        wait_for(lambda there=there: list(look(there)) == ["server"], what="all tables on the replica")  # type: ignore[misc]
        finding = look(there)["server"]
        assert finding.level is Level.FAIL
        assert "primary" in finding.fix
        dibs = Command(capsys)
        why = dibs("why", "q", "--url", url)
        assert why.out.startswith("misdirected: this connection leads to a server that takes no writes"), why
        assert "next: point the URL at the primary" in why.out
        locks = dibs("locks", "--url", url)
        assert (locks.code, "primary" in locks.err, "GRANT" in locks.err) == (3, True, False), locks


@contextmanager
def long_query(replica: Server) -> Iterator[None]:
    """A report on the replica that takes its time."""
    connection: OwnConnection = Dibs(replica.url).store.open()
    connection.answer(Execute("BEGIN ISOLATION LEVEL REPEATABLE READ", {}))
    connection.answer(Fetch("SELECT count(*) FROM dibs_jobs", {}))
    try:
        yield
    finally:
        with suppress(Exception):
            connection.close()


def feedback(db: Database, replica: Server) -> None:
    """A standby that tells its primary what it still reads: by itself, and through its slot."""

    def told(word: str) -> Finding | None:
        many_transactions(db)
        found = look(db, FEW).get("old snapshots")
        return found if found is not None and word in found.found else None

    for slot, words in ((None, "standby walreceiver, 127.0.0.1"), ("standby", "slot standby (physical), read by")):
        if slot:
            change(db, f"SELECT pg_create_physical_replication_slot('{slot}')")
            change(Database(db.name, replica.url), f"ALTER SYSTEM SET primary_slot_name = '{slot}'")
        with long_query(replica):
            found = until(lambda words=words: told(words), words)  # type: ignore[misc]
            assert "end the long query on the standby" in found.fix
            assert "hot_standby_feedback = off" in found.fix
        wait_for(lambda: "old snapshots" not in look(db, FEW), every=0.2, what="the query's end to be told")
