"""What docs/skip-locked.md says about PostgreSQL alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conformance.skip_locked.lab import Lab, Session, on, rows_of
from conftest import wait_for

pytestmark = on("postgres")

HEAD, MANY = 200, 1_000

INDEXED = "SET enable_seqscan = off; SET enable_bitmapscan = off"


@pytest.fixture
def many(lab: Lab) -> Lab:
    """A thousand ready jobs, whose statistics have been taken."""
    lab.make(MANY)
    lab.plain.run("ANALYZE jobs")
    return lab


def numbers(plan: str) -> str:
    """Return the nodes of a plan, outermost first."""
    return " > ".join(re.findall(r"(Limit|LockRows|Index Scan|Index Only Scan|Seq Scan|Sort|Gather)", plan))


def test_plan_of_a_claim(many: Lab) -> None:
    """Limit above LockRows above the scan of the index, without a sort."""
    session = many.session()
    session.run(INDEXED)
    plan = many.plan(session, many.claim(10), run=False)
    assert numbers(plan) == "Limit > LockRows > Index Scan", plan
    assert "jobs_ready" in plan


def test_no_parallel_plan(many: Lab) -> None:
    """A plan that is parallel without the lock is not with it."""
    session = many.session()
    session.run(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; "
        "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off"
    )
    select = "SELECT id FROM jobs WHERE note IS NULL"
    assert "Gather" in many.plan(session, select, run=False)
    assert "Gather" not in many.plan(session, f"{select} FOR UPDATE SKIP LOCKED", run=False)


@contextmanager
def head_locked(lab: Lab) -> Iterator[Session]:
    """Have the first rows locked by another session; yield one that goes by the index."""
    holder, session = lab.session(), lab.session()
    holder.run("BEGIN")
    holder.run(lab.claim(HEAD))
    session.run(INDEXED)
    yield session


def test_every_claim_walks_over_what_is_locked(many: Lab) -> None:
    """With 200 rows locked at the head, ten are found after 210; EXPLAIN shows it as a difference of LockRows to the scan."""
    with head_locked(many) as session:
        plan = many.plan(session, many.claim(10))
        assert (rows_of(plan, "LockRows"), rows_of(plan, "Index Scan")) == (10, HEAD + 10), plan


def test_segments_are_a_filter(many: Lab) -> None:
    """`id % 4 = 0` still reads the whole head: fewer locks are tried, no fewer rows read. What is in another's segment
    nobody else takes."""
    with head_locked(many) as session:
        claim = many.claim(10, where="id % 4 = 0")
        plan = many.plan(session, claim)
        removed = re.search(r"Rows Removed by Filter: (\d+)", plan)
        assert re.search(r" Filter: .*id % ", plan), plan
        assert removed is not None
        assert rows_of(plan, "Index Scan") == HEAD // 4 + 10
        assert rows_of(plan, "Index Scan") + int(removed[1]) == HEAD + 40
        assert {number % 4 for number in session.ids(claim)} == {0}


def test_the_partial_index_needs_no_statistics(many: Lab) -> None:
    """With the head done and no ANALYZE since, a claim reads all that is done, although there is an index on the status; with
    the partial index it reads what it takes."""
    many.plain.run("ALTER TABLE jobs SET (autovacuum_enabled = off); DROP INDEX jobs_ready")
    many.plain.run("CREATE INDEX jobs_status ON jobs (status, id); ANALYZE jobs")
    many.plain.run(f"UPDATE jobs SET status = 'done' WHERE id <= {MANY - 50}")
    plan = many.plan(many.plain, many.claim(10, order="id"))
    assert f"Rows Removed by Filter: {MANY - 50}" in plan, plan
    many.plain.run("CREATE INDEX jobs_ready ON jobs (priority, id) WHERE status = 'ready'")
    plan = many.plan(many.plain, many.claim(10))
    assert "jobs_ready" in plan, plan
    assert "Rows Removed by Filter" not in plan, plan


def test_in_with_a_limit_inside(many: Lab) -> None:
    """`WHERE id IN (SELECT … LIMIT 10 … SKIP LOCKED)` may be run once for each row, and then changes far more than ten. As a
    materialized CTE it is run once."""
    session = many.session()
    session.run(
        "SET enable_hashjoin = off; SET enable_hashagg = off; SET enable_mergejoin = off; SET enable_sort = off"
    )
    session.run("SET enable_material = off; BEGIN")
    inner = many.claim(10)
    changed = session.run(f"UPDATE jobs SET status = 'running' WHERE id IN ({inner}) RETURNING id")
    assert len(changed) > 10
    session.run("ROLLBACK; BEGIN")
    safe = f"WITH picked AS MATERIALIZED ({inner}) UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id"
    assert len(session.run(f"{safe} RETURNING jobs.id")) == 10


def test_order_of_returning(many: Lab) -> None:
    """RETURNING is in the order of the UPDATE, not of the ORDER BY within."""
    many.plain.run(f"UPDATE jobs SET priority = {MANY} - id")
    session = many.session()
    session.run("SET enable_hashjoin = off; SET enable_nestloop = off")
    picked = many.claim(10)
    update = "UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id, jobs.priority"
    session.run("BEGIN")
    priorities = [row[1] for row in session.run(f"WITH picked AS MATERIALIZED ({picked}) {update}")]
    assert priorities != sorted(priorities)
    session.run("ROLLBACK")
    whole = f"WITH picked AS MATERIALIZED ({picked}), claimed AS ({update}) SELECT priority FROM claimed ORDER BY priority, id"
    assert session.ids(whole) == list(range(10))


def test_partitions(lab: Lab) -> None:
    """Where a claim moves its row to another partition, the next one gets 40001 instead of the next row."""
    lab.drop()
    lab.plain.run(
        "CREATE TABLE jobs (id bigint, status text, priority int DEFAULT 0, note text) PARTITION BY LIST (status);"
        "CREATE TABLE jobs_ready PARTITION OF jobs FOR VALUES IN ('ready');"
        "CREATE TABLE jobs_other PARTITION OF jobs DEFAULT;"
        "INSERT INTO jobs (id, status) VALUES (1, 'ready'), (2, 'ready')"
    )
    other = lab.session()
    other.run("BEGIN ISOLATION LEVEL READ COMMITTED")
    # A cursor has its snapshot from when it was opened, as a claim has that began just before the other's COMMIT.
    other.run(f"DECLARE claim CURSOR FOR {lab.claim(1)}")
    lab.plain.run("UPDATE jobs SET status = 'running' WHERE id = 1")
    assert other.error("FETCH 1 FROM claim") == "40001"


def test_who_holds_a_row(lab: Lab) -> None:
    """The `tuple` rows of pg_locks are those who wait; the holder has none. Who skips is blocked by nobody."""
    holder, first, second, skipper = (lab.session() for _ in range(4))
    pid = {session: session.run("SELECT pg_backend_pid()")[0][0] for session in (holder, first, second, skipper)}
    update = "UPDATE jobs SET note = 'x' WHERE id = 1"
    holder.run(f"BEGIN; {update}")
    waiting = []
    for session in (first, second):
        session.run("SET lock_timeout = 0; BEGIN")
        waiting.append(threading.Thread(target=session.run, args=(update,)))
    tuples = "SELECT pid, granted FROM pg_locks WHERE locktype = 'tuple' AND relation = 'jobs'::regclass"
    for number, thread in enumerate(waiting, 1):
        thread.start()
        wait_for(lambda: len(lab.plain.run(tuples)) == number, what="a session that waits")
    assert dict(lab.plain.run(tuples)) == {pid[first]: True, pid[second]: False}
    skipper.run("BEGIN")
    assert skipper.ids(lab.claim(1)) == [2]
    blocked = {pid[name]: lab.plain.run(f"SELECT pg_blocking_pids({pid[name]})")[0][0] for name in (first, skipper)}
    assert blocked == {pid[first]: [pid[holder]], pid[skipper]: []}
    holder.run("ROLLBACK")
    waiting[0].join(20)
    first.run("ROLLBACK")
    waiting[1].join(20)


def test_advisory_lock_in_where(many: Lab) -> None:
    """In a WHERE above a sort it locks every row that is looked at, not the one that is returned."""
    session = many.session()
    session.run("BEGIN; SELECT id FROM jobs WHERE pg_try_advisory_xact_lock(id) ORDER BY note, id LIMIT 1")
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
    assert session.ids(held) == [MANY]


def test_locks_are_written(many: Lab) -> None:
    """A row lock is a write to the row's page: it makes WAL, and is why a standby refuses."""
    if int(many.plain.run("SHOW server_version_num")[0][0]) < 130_000:
        pytest.skip("EXPLAIN counts WAL from version 13 on")
    select = "SELECT id FROM jobs WHERE note IS NULL"
    many.plain.run(select)  # what it tidies up on its way is done
    explained = [
        "\n".join(row[0] for row in many.plain.run(f"EXPLAIN (ANALYZE, WAL) {select}{lock}"))
        for lock in ("", " FOR UPDATE SKIP LOCKED")
    ]
    assert ["WAL: records" in text for text in explained] == [False, True]
