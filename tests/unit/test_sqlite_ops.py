"""What SQLite's statements promise beyond what every database's do.

Ops are answered by hand where it matters what is asked, and run on a database in memory where it matters what
SQLite makes of it: which rows it reads, what a number of seconds comes to.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

import msgspec
import pytest

from dibs import migrations, ops
from dibs.bindings.own_sqlite3 import OwnSqlite3
from dibs.dialects.sqlite import SQLite, stored
from dibs.jobs import Claim, Enqueued, Lane, NewJob, Position, Settled, Verdict, Wanted
from dibs.ops import Fetch, Op, Request
from dibs.params import Style, render
from dibs.states import State

T = TypeVar("T")

SQL = SQLite()
DUE = "2001-01-01 00:00:00.000"


def new(**fields: Any) -> NewJob:
    return NewJob(**{"queue": "q", "task": "t", "payload": msgspec.Raw(b"{}")} | fields)


def answer(op: Op[T], *answers: Any) -> tuple[list[Request], T]:
    """Answer an op by hand; return what it asked and what it returned."""
    given = iter(answers)
    asked = [next(op)]
    while True:
        try:
            asked.append(op.send(next(given)))
        except StopIteration as end:
            assert not list(given), "the op asked less than was answered"
            return asked, end.value


def claim(lane: Lane, *, since: Position | None = None, start: int = 100, limit: int = 100) -> Op[list[Claim]]:
    return SQL.claim(
        Wanted(lane, since=since, tasks=SQL.names(["t"]), worker="w", lease=60.0, start=start, limit=limit)
    )


def verdict(job_id: int, **fields: Any) -> Verdict:
    given: dict[str, Any] = {"claims": 1, "status": State.DONE, "attempts": 1, "keep": 60.0} | fields
    return Verdict(id=job_id, **given)


# -- answered by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "first_answer"),
    [
        (SQL.enqueue([new()], tell=True), [(1,)]),
        (SQL.enqueue([new(), new()], tell=True), [(1,), (2,)]),
        (SQL.enqueue([new(task_key="k"), new()], tell=True), [("t", "k", 1)]),
        (
            SQL.finish(1, claims=1, worker="w", attempts=1, result=None, keep=1.0, frees_key=True),
            0,
        ),
    ],
    ids=["one", "many", "with a key", "finish"],
)
def test_writes_first(op: Op[Any], first_answer: Any) -> None:
    """On a user's connection a write comes first: it opens the transaction, and its snapshot is the newest."""
    assert next(op).sql.split()[0] in ("INSERT", "UPDATE")
    op.close()


def test_duplicate() -> None:
    """Who holds a key is asked after the write that found it taken, and the duplicate is recorded."""
    asked, answers = answer(
        SQL.enqueue([new(task_key="k"), new(task_key="k", payload=msgspec.Raw(b"[]"))], tell=True),
        [],
        [("t", "k", 7, "{}")],
        1,
    )
    assert answers == [Enqueued(7, False), Enqueued(7, False, differs=True)]
    assert [request.sql for request in asked] == [SQL.INSERT_KEYED, SQL.FIND_HOLDERS, SQL.RECORD_DUPLICATES]
    assert asked[-1].values == {"duplicates": '{"7":2}'}


def test_json_travels_as_text() -> None:
    """Payload and meta are strings in the list of jobs, so that SQLite's JSON functions don't write them anew."""
    payload = '{"n": 18446744073709551616, "x": 1e400}'
    job = new(payload=msgspec.Raw(payload.encode()), meta=msgspec.Raw(b"[1.0]"))
    asked, _ = answer(SQL.enqueue([job, job], tell=True), [(1,), (2,)])
    values = json.loads(str(asked[0].values["jobs"]))[0]
    assert payload in values
    assert "[1.0]" in values


def test_nothing_due_takes_no_lock() -> None:
    """A poll in vain is one read: it waits for no writer."""
    asked, claims = answer(claim(Lane("q", 0)), [])
    assert claims == []
    assert [(type(request), request.sql.split()[0]) for request in asked] == [(Fetch, "SELECT")]


def test_settle_frees_keys_together() -> None:
    """Keys are let go in one statement, a job that is not kept is deleted, what did not change is looked at."""
    verdicts = [verdict(1), verdict(2, keep=0.0), verdict(3), verdict(4, status=State.READY, keep=0.0)]
    asked, answers = answer(
        SQL.settle(verdicts, worker="w"),
        [(1, True)],
        [(1,)],
        0,
        [],
        [(0,)],
        2,
        [(3, "running", 2, "another")],
    )
    assert answers == {1: Settled.NOW, 2: Settled.NOW, 3: Settled.LOST, 4: Settled.NOW}
    verbs = [request.sql.split()[0] for request in asked]
    assert verbs == ["UPDATE", "DELETE", "DELETE", "UPDATE", "UPDATE", "DELETE", "SELECT"]
    assert asked[5].values == {"ids": "[1,2]"}
    assert not any(request.alone for request in asked[:6])


def test_finish_of_a_lost_claim_frees_nothing() -> None:
    """A finish that changed no row touches nothing else."""
    op = SQL.finish(1, claims=1, worker="w", attempts=1, result=None, keep=1.0, frees_key=True)
    asked, finished = answer(op, 0)
    assert not finished
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2030, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC), "2030-01-02 03:04:05.600"),
        (datetime(2030, 1, 2, 3, 4, 5, 600_001, tzinfo=UTC), "2030-01-02 03:04:05.601"),
        (datetime(2030, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC), "2031-01-01 00:00:00.000"),
        (datetime(2030, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=5))), "2030-01-01 22:04:00.000"),
        (datetime(2030, 1, 2, 3, 4), "2030-01-02 03:04:00.000"),
        (datetime(33, 1, 2, tzinfo=UTC), "0033-01-02 00:00:00.000"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31 23:59:59.999"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "9999-12-31 23:59:59.999"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), ""),
    ],
)
def test_stored(moment: datetime, text: str) -> None:
    """A time is stored in UTC, in one width, never earlier than it is."""
    assert stored(moment) == text


def test_index_is_made_on_an_unqualified_table() -> None:
    """CREATE INDEX takes no schema before the table's name; everything else gets one."""
    text = "CREATE TABLE dibs_jobs (id); CREATE UNIQUE INDEX dibs_jobs_x ON dibs_jobs (id)"
    assert SQL.qualify(text) == 'CREATE TABLE "main".dibs_jobs (id); CREATE UNIQUE INDEX dibs_jobs_x ON dibs_jobs (id)'


# -- in memory ---------------------------------------------------------------------------------------


@pytest.fixture
def raw() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for _, _, text in migrations.files(SQL):
        for statement in migrations.statements(text):
            connection.execute(statement)
    yield connection
    connection.close()


@pytest.fixture
def run(raw: sqlite3.Connection) -> Callable[[Op[Any]], Any]:
    return lambda op: ops.run(op, OwnSqlite3(raw, 5.0))


def fill(raw: sqlite3.Connection, jobs: int, *, status: str = "ready", queue: str = "q") -> None:
    """Write that many jobs of one queue, all due at one moment: a bulk."""
    raw.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
        "INSERT INTO dibs_jobs (queue, task, payload, status, run_at, created_at, task_key) "
        "SELECT ?, 't', '{}', ?, ?, ?, 'k' || i FROM n",
        (jobs, queue, status, DUE, DUE),
    )


def steps(raw: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Return how many instructions SQLite's machine took, which grow with the rows that it read."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    raw.set_progress_handler(step, 1)
    try:
        work()
    finally:
        raw.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("analyzed", [False, True])
def test_no_statement_reads_all_jobs(raw: sqlite3.Connection, analyzed: bool) -> None:
    """Statements find their jobs through an index, and a claim does not sort; only counting reads all jobs."""
    fill(raw, 2_000)
    fill(raw, 2_000, status="done")
    fill(raw, 20, status="running")
    if analyzed:
        raw.execute("ANALYZE")
    for name in dir(SQL):
        if not name.isupper() or name in ("COUNTS", "OVERVIEW", "SPAN_READY", "ENDED", "ACCOUNT"):
            continue
        text, names = render(getattr(SQL, name), Style.QMARK)
        values = ["{}" if value in ("held", "duplicates") else "[]" for value in names]
        for *_, line in raw.execute(f"EXPLAIN QUERY PLAN {text}", values):
            reads_all = line.startswith("SCAN") and "dibs_jobs" in line and "dibs_jobs_running" not in line
            assert not reads_all, f"{name}: {line}"
            assert "TEMP B-TREE" not in line or name != "CLAIM", line


def test_lanes_read_a_row_each(raw: sqlite3.Connection, run: Callable[[Op[Any]], Any]) -> None:
    """Finding the lanes does not take longer where more jobs are ready."""
    for queue in ("a", "b", "c"):
        fill(raw, 3_000, queue=queue)
    raw.execute("UPDATE dibs_jobs SET priority = 7 WHERE queue = 'b' AND id % 2 = 0")
    lanes = [Lane("a", 0), Lane("b", 0), Lane("b", 7), Lane("c", 0)]
    assert run(SQL.lanes(None)) == lanes
    assert run(SQL.lanes(["c", "b", "none"])) == [lanes[3], lanes[1], lanes[2]]
    assert steps(raw, lambda: run(SQL.lanes(None))) < 500
    assert steps(raw, lambda: run(SQL.lanes(["a", "b", "c"]))) < 500


def test_claims_read_what_they_claim(raw: sqlite3.Connection, run: Callable[[Op[Any]], Any]) -> None:
    """A claim takes as long in the middle of a bulk as at its beginning, and none longer for jobs of later."""
    fill(raw, 5_000)
    first = run(claim(Lane("q", 0), limit=10))
    raw.execute("UPDATE dibs_jobs SET status = 'done' WHERE id <= 3000")
    at_start = steps(raw, lambda: run(claim(Lane("q", 0), limit=10)))
    since = run(claim(Lane("q", 0), limit=10))[0].position
    in_the_middle = steps(raw, lambda: run(claim(Lane("q", 0), since=since, limit=10)))
    assert [job.id for job in first] == list(range(1, 11))
    assert in_the_middle < at_start + 500
    raw.execute("UPDATE dibs_jobs SET run_at = '9999' WHERE status = 'ready'")
    assert steps(raw, lambda: run(claim(Lane("q", 0)))) < 200


def test_first_in_the_lane_are_started(raw: sqlite3.Connection, run: Callable[[Op[Any]], Any]) -> None:
    """The first `start` in the order of the lane are started, the next held, one that crashed not claimed."""
    fill(raw, 9)
    raw.execute("UPDATE dibs_jobs SET run_at = printf('2001-01-01 00:00:00.%03d', 9 - id)")
    raw.execute("UPDATE dibs_jobs SET crashes = 1 WHERE id IN (9, 5)")
    claims = run(claim(Lane("q", 0), start=2, limit=6))
    assert [(job.id, job.started, job.attempts) for job in claims] == [
        (9, True, 1),
        (8, True, 1),
        (7, False, 0),
        (6, False, 0),
        (4, False, 0),
    ]


def test_bulk_keeps_order_and_text(raw: sqlite3.Connection, run: Callable[[Op[Any]], Any]) -> None:
    """Ids rise with the list, and what comes out is what went in, to the byte."""
    payloads = [f'{{"n": {2**64 + n}, "é\\u0000\\"\\\\": 1.0E+2}}' for n in range(300)]
    jobs = [new(payload=msgspec.Raw(payload.encode()), task=f"t{n}'\"\n") for n, payload in enumerate(payloads)]
    added = run(SQL.enqueue(jobs, tell=True))
    assert [job.id for job in added] == list(range(1, 301))
    rows = raw.execute("SELECT payload, task FROM dibs_jobs ORDER BY id").fetchall()
    assert rows == [(payload, job.task) for payload, job in zip(payloads, jobs, strict=True)]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("delay", "waits"),
    [
        (-5.0, timedelta(0)),
        (1e-05, timedelta(0)),
        (0.0015, timedelta(milliseconds=2)),
        (86_400.25, timedelta(days=1, milliseconds=250)),
        (1e9, timedelta(seconds=1_000_000_000)),
        (1e300, None),
    ],
)
def test_delays(
    raw: sqlite3.Connection,
    run: Callable[[Op[Any]], Any],
    jobs: int,
    delay: float,
    waits: timedelta | None,
) -> None:
    """A delay of any size, however Python writes it, is kept to the millisecond; too far away is the end of time."""
    run(SQL.enqueue([new(delay=delay)] * jobs, tell=True))
    for run_at, created_at in raw.execute("SELECT run_at, created_at FROM dibs_jobs"):
        if waits is None:
            assert run_at == "9999-12-31 23:59:59.999"
        else:
            assert SQL.moment(run_at) - SQL.moment(created_at) == waits


def test_columns_are_not_converted(raw: sqlite3.Connection) -> None:
    """No column is declared as anything that a driver might turn into a date, a bool or JSON."""
    tables = [
        row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE name LIKE 'dibs%' AND type = 'table'")
    ]
    declared = {row[2] for table in tables for row in raw.execute(f"PRAGMA table_info({table})")}
    assert len(tables) == 8
    assert declared == {"TEXT", "INTEGER", "REAL"}


def test_ids_are_not_reused(raw: sqlite3.Connection, run: Callable[[Op[Any]], Any]) -> None:
    """The id of a deleted job is not given to another, not even the last one."""
    (first,) = run(SQL.enqueue([new()], tell=True))
    raw.execute("DELETE FROM dibs_jobs")
    (second,) = run(SQL.enqueue([new()], tell=True))
    assert second.id > first.id
