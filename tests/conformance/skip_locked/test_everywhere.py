"""What docs/skip-locked.md says about PostgreSQL, MySQL and MariaDB together, asked of each."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conformance.skip_locked.lab import LABS, REFUSED, WAITED, Lab, Session
from conformance.skip_locked.matrix import PAGE, marks, table
from conftest import wait_for
from databases import Database


def test_lock_matrix(lab: Lab) -> None:
    """The page's table is what this server answers now."""
    (on_page,) = marks(lab.db.kind).findall(PAGE.read_text(encoding="utf-8"))
    assert on_page == table(lab), "run scripts/lock-matrix, and read what else the page says"


def test_next_rows(lab: Lab) -> None:
    """Each claim gets the next rows and waits for nobody; LIMIT counts what it got, not what it passed over."""
    first, second = lab.session(), lab.session()
    first.run("BEGIN")
    second.run("BEGIN")
    assert first.ids(lab.claim(3)) == [1, 2, 3]
    assert second.ids(lab.claim(3)) == [4, 5, 6]
    assert lab.free() == {7, 8, 9, 10}


def test_autocommit(lab: Lab) -> None:
    """Without a transaction the lock is gone with the statement: two sessions have the same rows."""
    first, second = lab.session(), lab.session()
    assert first.ids(lab.claim(3)) == second.ids(lab.claim(3)) == [1, 2, 3]


def test_offset(lab: Lab) -> None:
    """OFFSET locks the rows that it leaves out."""
    holder = lab.session()
    holder.run("BEGIN")
    assert holder.ids(lab.claim(3).replace("LIMIT 3", "LIMIT 3 OFFSET 4")) == [5, 6, 7]
    assert lab.free() == {8, 9, 10}


def test_savepoint(lab: Lab) -> None:
    """ROLLBACK TO SAVEPOINT frees a row on PostgreSQL; on InnoDB it stays locked to the end, but where the savepoint came
    before all else."""
    for before, freed in (("SELECT id FROM jobs", lab.db.kind == "postgres"), ("SELECT 1", True)):
        holder = lab.session()
        holder.run(f"BEGIN; {before}; SAVEPOINT mark; {lab.claim(3)}")
        holder.run("ROLLBACK TO SAVEPOINT mark")
        assert len(lab.free()) == (10 if freed else 7), before
        holder.run("ROLLBACK")
        assert len(lab.free()) == 10


def test_locked_and_empty_look_alike(lab: Lab) -> None:
    """All locked and none ready are the same empty answer; NOWAIT tells them apart."""
    holder, other = lab.session(), lab.session()
    holder.run("BEGIN")
    holder.run(lab.claim(10))
    nowait = lab.claim(1).replace("SKIP LOCKED", "NOWAIT")
    assert other.run(lab.claim(1)) == []
    if lab.db.kind == "mysql":
        assert other.run("SHOW WARNINGS") == []
    assert other.error(nowait) == REFUSED[lab.server]
    holder.run("UPDATE jobs SET status = 'done'; COMMIT")
    assert other.run(lab.claim(1)) == []
    assert other.error(nowait) is None


def test_table_locks(lab: Lab) -> None:
    """Locks of the whole table are waited for, as ALTER TABLE takes them."""
    holder, other = lab.session(), lab.session()
    if lab.db.kind == "postgres":
        holder.run("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
    else:
        holder.run("LOCK TABLES jobs WRITE")
        other.run("SET innodb_lock_wait_timeout = 1000")  # not what ends this
    assert other.error(lab.claim(1)) == WAITED[lab.server]


def test_join_without_of(lab: Lab) -> None:
    """A joined table's rows are locked too: the second claim gets nothing, unless FOR UPDATE OF names the jobs' table.
    MariaDB has no OF."""
    lab.plain.run(
        "DROP TABLE IF EXISTS queues; CREATE TABLE queues (id int PRIMARY KEY); INSERT INTO queues VALUES (1)"
    )
    claim = "SELECT j.id FROM jobs j JOIN queues q ON q.id = 1 ORDER BY j.id LIMIT 2 FOR UPDATE {} SKIP LOCKED"
    first, second = lab.session(), lab.session()
    first.run("BEGIN")
    first.run(claim.format(""))
    assert second.ids(claim.format("")) == []
    first.run("ROLLBACK")
    if lab.mariadb:
        assert first.error(claim.format("OF j")) == 1064
        return
    first.run("BEGIN")
    first.run("SELECT id FROM jobs ORDER BY id LIMIT 2 FOR UPDATE")
    first.run("SELECT id FROM queues FOR SHARE")
    assert len(second.ids(claim.format("OF j"))) == 2


def test_reference(lab: Lab) -> None:
    """A job that somebody is just referring to is skipped by FOR UPDATE, and by nothing weaker on PostgreSQL; a claim with
    FOR UPDATE makes such an INSERT wait."""
    user, worker = lab.session(), lab.session()
    user.run("BEGIN; INSERT INTO parts VALUES (1)")
    assert worker.ids(lab.claim(1, lock="FOR UPDATE")) == [2]
    assert worker.ids(lab.claim(1)) == [1 if lab.db.kind == "postgres" else 2]
    user.run("ROLLBACK")
    worker.run("BEGIN")
    worker.run(lab.claim(1, lock="FOR UPDATE"))
    assert user.error("INSERT INTO parts VALUES (1)") == WAITED[lab.server]
    if lab.db.kind == "postgres":
        worker.run("ROLLBACK; BEGIN")
        worker.run(lab.claim(1))
        assert user.error("INSERT INTO parts VALUES (1)") is None


def test_order_without_an_index(lab: Lab) -> None:
    """Sorted before it is locked: InnoDB has then locked every ready row, and the second claim gets nothing. PostgreSQL
    locks what it returns."""
    first, second = lab.session(), lab.session()
    first.run("BEGIN")
    assert first.ids(lab.claim(1, order="note, id")) == [1]
    assert len(lab.free()) == (9 if lab.db.kind == "postgres" else 0)
    assert second.ids(lab.claim(1, order="note, id")) == ([2] if lab.db.kind == "postgres" else [])


def test_repeatable_read(lab: Lab) -> None:
    """A row that was changed after the snapshot: 40001 on PostgreSQL, 1020 on MariaDB where it keeps to snapshots, the
    new version on MySQL. At READ COMMITTED no error."""
    claim = lab.claim(1, where="note IS NULL")
    reader = lab.session()
    for level in ("REPEATABLE READ", "READ COMMITTED"):
        lab.make(10)
        reader.run(
            f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"
            if lab.db.kind == "postgres"
            else f"SET SESSION TRANSACTION ISOLATION LEVEL {level}"
        )
        reader.run("BEGIN; SELECT id FROM jobs")
        lab.plain.run(
            "UPDATE jobs SET priority = priority WHERE id = 1"
            if lab.db.kind == "postgres"
            else "UPDATE jobs SET priority = 1 WHERE id = 1"
        )
        wanted = None
        if level == "REPEATABLE READ":
            strict = lab.mariadb and lab.plain.run("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")[0][1] == "ON"
            wanted = "40001" if lab.db.kind == "postgres" else 1020 if strict else None
        assert reader.error(claim.replace("LIMIT 1", "LIMIT 10")) == wanted
        reader.run("ROLLBACK")


def test_advisory_lock_outlives(lab: Lab) -> None:
    """An advisory lock of a session is still there after COMMIT and after ROLLBACK, and locks no row."""
    take, give = (
        ("SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_unlock(1)")
        if lab.db.kind == "postgres"
        else (f"SELECT GET_LOCK('{lab.plain.run('SELECT DATABASE()')[0][0]}', 0)", "SELECT RELEASE_ALL_LOCKS()")
    )
    holder, other = lab.session(), lab.session()
    for end in ("COMMIT", "ROLLBACK"):
        holder.run("BEGIN")
        assert holder.run(take) in ([(True,)], [(1,)])
        holder.run(end)
        assert other.run(take) in ([(False,)], [(0,)])
        assert len(lab.free()) == 10
        holder.run(give)


def test_read_only(lab: Lab) -> None:
    """A claim is a write: a read-only transaction refuses it."""
    session = lab.session()
    session.run("START TRANSACTION READ ONLY")
    assert session.error(lab.claim(1)) == ("25006" if lab.db.kind == "postgres" else 1792)


def test_by_id(lab: Lab) -> None:
    """One given row: SKIP LOCKED finds nothing whether it is locked or gone; NOWAIT says which."""
    holder, other = lab.session(), lab.session()
    holder.run("BEGIN")
    holder.run("SELECT id FROM jobs WHERE id = 4 FOR UPDATE")
    for number, refusal in ((4, REFUSED[lab.server]), (999, None)):
        assert other.run(f"SELECT id FROM jobs WHERE id = {number} FOR UPDATE SKIP LOCKED") == []
        assert other.error(f"SELECT id FROM jobs WHERE id = {number} FOR UPDATE NOWAIT") == refusal


def test_what_to_paste(lab: Lab) -> None:
    """The claim to paste claims the first jobs, in order, and needs the index that the page makes."""
    page = PAGE.read_text(encoding="utf-8")
    postgres = lab.db.kind == "postgres"
    (claim,) = re.findall(rf"```sql\n({'WITH' if postgres else 'SET TRANSACTION'} .*?)```", page, re.DOTALL)
    (index,) = re.findall(
        rf"^(CREATE INDEX .*); +-- {'PostgreSQL' if postgres else 'MySQL, MariaDB'}$", page, re.MULTILINE
    )
    lab.plain.run(f"DROP INDEX jobs_ready{'' if postgres else ' ON jobs'}; {index}")
    lab.plain.run("UPDATE jobs SET status = 'done' WHERE id > 3")
    rows = lab.session().run(re.sub(r" +-- .*", "", claim))
    assert rows == ([(1,), (2,), (3,)] if postgres else [])
    assert lab.plain.ids("SELECT id FROM jobs WHERE status = 'running' ORDER BY id") == [1, 2, 3]


def nothing() -> None: ...


@pytest.mark.parametrize("db", LABS, indirect=True)
def test_what_to_paste_tonight(db: Database) -> None:
    """The statements at the head of the page, on dibs' own table: refused while somebody has the job, the job after that,
    nothing where none is due; and the holder is among the old transactions."""
    who = {"postgres": "PostgreSQL", "mysql": "MySQL, MariaDB"}[db.kind]
    first_job, old_transactions = re.findall(
        rf"```sql\n-- {who}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )[:2]
    with closing(Session(db)) as holder, closing(Session(db)) as person:
        assert person.run(first_job) == []
        job = db.app().task(name="t")(nothing).enqueue()
        holder.run(f"BEGIN; SELECT id FROM dibs_jobs WHERE id = {job.id} FOR UPDATE")
        assert person.error(first_job) == REFUSED["mariadb" if db.name.startswith("mariadb") else db.kind]
        own = holder.run("SELECT pg_backend_pid()" if db.kind == "postgres" else "SELECT CONNECTION_ID()")
        # InnoDB shows transactions as they were up to a tenth of a second ago.
        wait_for(lambda: own[0] in [row[:1] for row in person.run(old_transactions)], every=0.15, what="the holder")
        holder.run("ROLLBACK")
        assert person.ids(first_job) == [job.id]


def test_sqlite(tmp_path: Path) -> None:
    """There are no row locks: FOR UPDATE is an error of syntax, and the second writer is refused the whole file."""
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as first:
        first.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY)")
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            first.execute("SELECT id FROM jobs FOR UPDATE SKIP LOCKED")
        first.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as second:
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                second.execute("BEGIN IMMEDIATE")
            assert second.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
