"""Who holds rows of the queue: each kind of holder is named rightly, and nobody who merely waits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

import pytest

from anomaly.own_server import own_server
from commands import Command, environment
from conftest import wait_for
from databases import NAMES, Database
from dibs import Dibs, LockHolder
from dibs.bindings.binding import OwnConnection
from dibs.holders import shortened
from dibs.ops import Execute

#: A process with a connection of its own, which does something, says so and stands still. Its arguments: URL, job ids.
IDLE = """
import sys, time
from dibs import Dibs
from dibs.ops import Execute
connection = Dibs(sys.argv[1]).store.open()
connection.begin()
connection.answer(Execute("UPDATE dibs_jobs SET retention = 77 WHERE id IN (" + sys.argv[2] + ")", {}))
print("there", flush=True)
time.sleep(60)
"""

#: As a worker that is paused between the first statement of a claim and its commit; it is in the register.
IN_A_CLAIM = """
import sys, time
from dibs import Dibs, ops
from dibs.jobs import Lane, Wanted
from dibs.register import Seen
from dibs.worker.register import entry_of
app = Dibs(sys.argv[1])
connection = app.new_store(name="dibs worker").open()
seen = Seen(state="working", slots=[], claims=0, done_rate=0, failed_rate=0, last_error=None, last_error_at=None,
    claimed_queue=None, claimed_at=None, polls=None, detail={"sessions": [connection.session]})
app.store.run(lambda: app.dialect.enter_worker(entry_of("the paused one", None, ["t"]), seen, age=1.0))
connection.begin()
claim = app.dialect.claim(Wanted(Lane("mail", 0), since=None, tasks=app.dialect.names(["t"]), worker="the paused one", lease=60.0,
    start=2, limit=2))
ops.run(ops.together(claim), connection)
print("there", flush=True)
time.sleep(60)
"""


def job_ids(app: Dibs, number: int, queue: str = "mail") -> list[int]:
    @app.task(name="t")
    def t() -> None: ...

    return [job.id for job in app.enqueue_many(t.using(queue=queue).call() for _ in range(number))]


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run code in a process until it says that it is there; end it afterwards."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    assert running.stdout is not None
    try:
        assert running.stdout.readline() == "there\n"
        yield running
    finally:
        running.kill()
        running.wait(10)
        running.stdout.close()


@contextmanager
def statement(db: Database, sql: str) -> Iterator[OwnConnection]:
    """Run a statement that takes long on a connection of its own; end that session afterwards."""
    connection = db.connect()
    patience = "SET lock_timeout = '60s'" if db.kind == "postgres" else "SET SESSION lock_wait_timeout = 60"
    connection.answer(Execute(patience, {}))

    def run() -> None:
        with suppress(Exception):  # it is ended by the test
            connection.answer(Execute(sql, {}))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield connection
    finally:
        with suppress(Exception):
            app = db.app()
            app.store.run(lambda: app.dialect.end_session(connection.session or 0))
        thread.join(15)
        connection.close()


def test_culprit_is_found_with_the_command_line_alone(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """An idle transaction holds the head of the queue: shown, ended, gone, in three commands."""
    app, dibs = db.app(), Command(capsys)
    ids = job_ids(app, 5)
    with process(IDLE, db.url, f"{ids[0]}, {ids[1]}") as culprit:
        (holder,) = dibs("locks", "mail", "--url", db.url, "--json").json["holders"]
        if db.locks_rows:
            assert (holder["rows"], holder["queues"], holder["jobs"]) == (2, {"mail": 2}, ids[:2])
            assert holder["state"] == "idle in transaction"
            assert dibs("locks", "other", "--url", db.url, "--json").json["holders"] == []
        else:
            assert holder["session"] == culprit.pid
        assert str(holder["session"]) in holder["ends_with"]
        shown = dibs("locks", "--url", db.url)
        assert holder["ends_with"] in shown.out
        refused = dibs("locks", "--url", db.url, "--kill", culprit.pid + 2**22, "--yes")
        assert refused.code == 2
        assert "is no session that holds" in refused.err
        unasked = dibs("locks", "--url", db.url, "--kill", holder["session"])
        assert (unasked.code, "Say --yes" in unasked.err) == (2, True)
        ended = dibs("locks", "--url", db.url, "--kill", holder["session"], "--yes")
        assert (ended.code, ended.out) == (0, f"ended {holder['session']}\n")
        wait_for(lambda: not app.locks().holders, what="its rows to be free")
    assert "nobody holds rows" in dibs("locks", "--url", db.url).err


def test_paused_worker_is_named(db: Database) -> None:
    """A worker that was stopped in a claim, by the name that the register has for it."""
    app = db.app()
    ids = job_ids(app, 3)
    with process(IN_A_CLAIM, db.url) as worker:
        os.kill(worker.pid, signal.SIGSTOP)

        def named() -> list[LockHolder]:
            # On a busy server what it holds may not be told in time; asked again, it is.
            known = [each for each in app.locks().holders if each.worker == "the paused one"]
            return [each for each in known if each.rows or not db.locks_rows]

        (holder,) = wait_for(named, what="it to be named")
        assert holder.kind == "worker"
        if db.locks_rows:
            assert (holder.rows, holder.jobs) == (2, ids[:2])
        else:
            assert (holder.session, "stopped" in holder.state) == (worker.pid, True)


SLOW_UPDATE = {
    "postgres": "UPDATE dibs_jobs SET retention = CASE WHEN id = {1} THEN length(pg_sleep(40)::text) ELSE 5 END "
    "WHERE id IN ({0}, {1})",
    "mysql": "UPDATE dibs_jobs SET retention = IF(id = {1}, SLEEP(40) + 5, 5) WHERE id IN ({0}, {1})",
}


def test_long_update_and_definition_that_waits_for_it(db: Database) -> None:
    """Who runs a long UPDATE holds the rows; who wants the whole table waits for him, and others stand behind it."""
    if not db.locks_rows:
        pytest.skip("there a transaction that writes holds up everything")
    app = db.app()
    ids = job_ids(app, 3)
    with statement(db, SLOW_UPDATE[db.kind].format(*ids)) as slow:
        holder = wait_for(lambda: [each for each in app.locks().holders if each.rows], what="the rows to be held")[0]
        assert (holder.session, holder.state) == (slow.session, "runs a statement")
        assert "retention" in (holder.query or "")
        assert ids[0] in holder.jobs
        with statement(db, "ALTER TABLE dibs_jobs ADD COLUMN dibs_test_extra integer") as alter:
            both = {alter.session, slow.session}

            def seen() -> dict[int | None, LockHolder]:
                found = {each.session: each for each in app.locks().holders}
                return found if found.keys() >= both and found[slow.session].blocks else {}

            found = wait_for(seen, what="both to be named")
            assert found[alter.session].waits_for == [slow.session]
            assert [each.endswith(" on dibs_jobs (waiting)") for each in found[alter.session].tables] == [True]
            assert found[slow.session].blocks == [alter.session]
            assert app.end_holder(alter.session or 0)
        assert app.end_holder(slow.session or 0)
    wait_for(lambda: not app.locks().holders, what="all to be over")
    assert not app.end_holder(slow.session or 0)


WHOLE_TABLE = {"postgres": "LOCK TABLE dibs_jobs IN SHARE MODE", "mysql": "LOCK TABLES dibs_jobs WRITE"}


def test_whole_table(db: Database) -> None:
    """Who has the whole table is named, and what ends it."""
    if db.kind not in WHOLE_TABLE or db.name.startswith("mariadb"):
        pytest.skip("it has no such lock, or does not tell: see the next test")
    app = db.app()
    job_ids(app, 1)
    connection = db.connect()
    connection.begin()
    connection.answer(Execute(WHOLE_TABLE[db.kind], {}))
    try:
        (holder,) = app.locks("mail").holders
        assert holder.session == connection.session
        assert [each.endswith(" on dibs_jobs") for each in holder.tables] == [True]
        assert app.end_holder(connection.session or 0)
        wait_for(lambda: not app.locks().holders, what="the table to be free")
    finally:
        connection.close()


@pytest.mark.skipif("mariadb" not in NAMES, reason="there is no MariaDB")
def test_whole_table_of_which_the_server_does_not_tell(capsys: pytest.CaptureFixture[str]) -> None:
    """MariaDB does not say whose a whole table is: then that is said, with what makes it tell, and that does."""
    with own_server("mariadb") as server:
        db = Database("mariadb", server.url)
        app = db.app()
        job_ids(app, 1)
        with closing(db.connect()) as connection:
            connection.answer(Execute("LOCK TABLES dibs_jobs WRITE", {}))
            shown = Command(capsys)("locks", "mail", "--url", db.url)
            assert (shown.out, "as far as can be seen, nobody holds rows of mail" in shown.err) == ("", True)
            pasted = re.findall(
                r"INSTALL SONAME '\w+'|UPDATE performance_schema.*'wait/lock/metadata/sql/mdl'", shown.err
            )
            assert len(pasted) == 2
            ways = [pasted[1]]
            try:
                db.execute(pasted[0])
                ways.insert(0, pasted[0].replace("INSTALL", "UNINSTALL"))
            except Exception as error:  # this server has come without its plugins
                assert "metadata_lock_info" in str(error)
            connection.answer(Execute("UNLOCK TABLES", {}))
            for way in ways:
                if way == pasted[1]:
                    db.execute(way)
                for sql, held in (
                    ("LOCK TABLES dibs_jobs WRITE", "SHARED NO READ WRITE on dibs_jobs"),
                    ("FLUSH TABLES WITH READ LOCK", "BACKUP FTWRL. on all tables of the server"),
                ):
                    connection.answer(Execute(sql, {}))
                    (holder,) = app.locks("mail").holders
                    assert (holder.session, len(holder.tables)) == (connection.session, 1)
                    assert re.fullmatch(held, holder.tables[0])
                    connection.answer(Execute("UNLOCK TABLES", {}))
                # As a dump without --single-transaction does it. Its lock looks like any reader's, until somebody waits.
                connection.answer(Execute("LOCK TABLES dibs_jobs READ", {}))
                with statement(db, "UPDATE dibs_jobs SET retention = 5") as behind:
                    wait_for(
                        lambda: [each.blocks for each in app.locks("mail").holders] == [[behind.session]], what=way
                    )
                connection.answer(Execute("UNLOCK TABLES", {}))
                if way != pasted[1]:
                    db.execute(way)


def test_prepared_transaction(db: Database) -> None:
    """One that was prepared has no session: it is named with what ends it."""
    if not db.locks_rows:
        pytest.skip("it has no two-phase commit")
    postgres = db.kind == "postgres"
    if postgres and db.fetch("SELECT current_setting('max_prepared_transactions')") == [("0",)]:
        pytest.skip("this server is set to take none: max_prepared_transactions = 0")
    app = db.app()
    ids = job_ids(app, 3)
    name = f"dibs-test-{uuid.uuid4().hex[:8]}"
    update = f"UPDATE dibs_jobs SET retention = 77 WHERE id = {ids[0]}"
    before = ["BEGIN"] if postgres else [f"XA START '{name}'"]
    after = [f"PREPARE TRANSACTION '{name}'"] if postgres else [f"XA END '{name}'", f"XA PREPARE '{name}'"]
    ends = f"ROLLBACK PREPARED '{name}'" if postgres else f"XA ROLLBACK '{name}'"
    connection = db.connect()
    for sql in (*before, update, *after):
        connection.answer(Execute(sql, {}))
    connection.close()
    try:
        holder = wait_for(lambda: [each for each in app.locks().holders if each.prepared], what="it to be named")[0]
        assert (holder.kind, holder.session, holder.rows, holder.jobs) == ("prepared", None, 1, ids[:1])
        assert ends in holder.ends_with or any(ends in note for note in app.locks().notes)
    finally:
        db.execute(ends)
    assert app.locks().holders == []


def test_with_and_without_pgrowlocks(db: Database) -> None:
    """Where the extension is there, and where it is not: each kind of holder has the same rows, all at the same time; and who
    waits for the whole table, behind whom nobody can see rows, has the same in his way."""
    if db.kind != "postgres" or not db.fetch("SELECT 1 FROM pg_available_extensions WHERE name = 'pgrowlocks'"):
        pytest.skip("it has no pgrowlocks")
    app = db.app()
    ids = job_ids(app, 7)
    name = f"dibs-test-{uuid.uuid4().hex[:8]}"

    def seen() -> tuple[list[object], list[str]]:
        report = app.locks()
        return [
            (each.kind, each.session, each.worker, each.prepared, each.rows, each.jobs, each.waits_for, each.blocks)
            for each in report.holders
        ], report.notes

    def both() -> list[object]:
        without, notes = seen()
        db.execute("CREATE EXTENSION pgrowlocks")
        try:
            with_it, others = seen()
        finally:
            db.execute("DROP EXTENSION pgrowlocks")
        assert with_it == without
        assert [note for note in notes if "CREATE EXTENSION pgrowlocks" not in note] == others
        return without

    with closing(db.connect()) as connection:
        for sql in (
            "BEGIN",
            f"UPDATE dibs_jobs SET retention = 77 WHERE id = {ids[0]}",
            f"PREPARE TRANSACTION '{name}'",
        ):
            connection.answer(Execute(sql, {}))
    try:
        with (
            process(IDLE, db.url, f"{ids[1]}, {ids[2]}"),
            statement(db, SLOW_UPDATE[db.kind].format(ids[3], ids[4])) as slow,
        ):
            wait_for(lambda: len(seen()[0]) == 3, what="the long UPDATE to have its row")
            with process(IN_A_CLAIM, db.url) as worker:
                os.kill(worker.pid, signal.SIGSTOP)
                wait_for(lambda: len(seen()[0]) == 4, what="the worker to have stood still for long enough")
                held = {(each[0], each[2], tuple(each[5])) for each in both()}  # type: ignore[index]
            assert held == {
                ("prepared", None, (ids[0],)),
                ("transaction", None, (ids[1], ids[2])),
                ("transaction", None, (ids[3],)),
                ("worker", "the paused one", (ids[4], ids[5])),
            }
            with statement(db, "ALTER TABLE dibs_jobs ADD COLUMN dibs_test_extra integer") as alter:
                stands = f"SELECT 1 FROM pg_locks WHERE NOT granted AND pid = {alter.session}"
                wait_for(lambda: db.fetch(stands), what="it to wait")
                found = {each[1]: each for each in both()}  # type: ignore[index]
                assert slow.session in found[alter.session][6]  # type: ignore[index]
    finally:
        db.execute(f"ROLLBACK PREPARED '{name}'")


def test_each_has_its_own_rows(db: Database) -> None:
    """Two who hold rows are told apart; one who has locked rows of another table in the same database is not named."""
    if not db.locks_rows:
        pytest.skip("there a transaction that writes holds up everything")
    app = db.app()
    ids = job_ids(app, 6)
    db.execute("CREATE TABLE shop (id integer PRIMARY KEY, number integer)")
    db.execute("INSERT INTO shop VALUES (1, 1)")
    connections = [db.connect() for _ in range(3)]
    changes = [f"UPDATE dibs_jobs SET retention = 77 WHERE id IN ({ids[at]}, {ids[at + 1]})" for at in (0, 3)]
    try:
        for connection, change in zip(connections, [*changes, "UPDATE shop SET number = 2"], strict=True):
            connection.begin()
            connection.answer(Execute(change, {}))
        found = {holder.session: (holder.rows, holder.jobs) for holder in app.locks().holders}
        assert found == {connections[0].session: (2, ids[:2]), connections[1].session: (2, ids[3:5])}
    finally:
        for connection in connections:
            connection.close()
        db.execute("DROP TABLE shop")


def test_missing_privilege_is_named(db: Database) -> None:
    """A user who may only read and write the tables is told which grant it takes to see others; never that nobody holds
    anything."""
    if not db.locks_rows:
        pytest.skip("it has no users")
    app, user = db.app(), f"low_{uuid.uuid4().hex[:8]}"
    job_ids(app, 1)
    url = urlsplit(db.url)
    low = Dibs(urlunsplit(url._replace(netloc=f"{user}:a-word@{url.hostname}:{url.port}")))
    tables, word = (
        ("ALL TABLES IN SCHEMA public", "PASSWORD") if db.kind == "postgres" else (f"{url.path[1:]}.*", "IDENTIFIED BY")
    )
    db.execute(f"CREATE USER {user} {word} 'a-word'")
    try:
        db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {user}")
        connection = db.connect()
        connection.begin()
        connection.answer(Execute("UPDATE dibs_jobs SET retention = 77", {}))
        report = low.locks()
        connection.close()
    finally:
        low.close()
        if db.kind == "postgres":
            db.execute(f"DROP OWNED BY {user}")
        db.execute(f"DROP USER {user}")
    if db.kind == "postgres":
        assert [(holder.rows, holder.state) for holder in report.holders] == [(1, "hidden")]
        assert any("GRANT pg_read_all_stats" in note for note in report.notes)
    else:
        assert not report.complete
        assert any("GRANT PROCESS" in note for note in report.notes)
        assert "1 job is held by transactions that this user may not see" in report.notes


@pytest.mark.parametrize(
    "query",
    [
        "ALTER USER shop PASSWORD 'very secret'",
        "CREATE USER shop IDENTIFIED BY 'very secret'",
        "CREATE USER shop IDENTIFIED WITH mysql_native_password BY 'very secret' REQUIRE SSL",
        "SELECT dblink_connect('host=x password=''very secret''')",
        "SELECT dblink_connect('host=x password=very-secret')",
        "CREATE SUBSCRIPTION s CONNECTION 'postgresql://shop:very%20secret@db/shop'",
    ],
)
def test_no_password_in_a_statement(query: str) -> None:
    """What is shown of a statement has no password in it."""
    assert "very" not in (shortened(query) or "")
