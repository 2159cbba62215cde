"""Every hot statement reads its own rows and nothing else, however large the table is and whatever the statistics say.

On 200,000 rows; `scripts/plans` does the same with two million (DIBS_TEST_PLANS_ROWS).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conformance.hands import Queue, new_job, verdict
from conformance.plans import Reader, counting, reading
from conftest import wait_for
from databases import NAMES, Database, migrated
from dibs.bindings.binding import OwnConnection
from dibs.dialects.dialect import Dialect
from dibs.jobs import Claim, Lane, Position, Wanted
from dibs.ops import Execute, Op
from dibs.states import State

ROWS = int(os.environ.get("DIBS_TEST_PLANS_ROWS") or 200_000)

#: As many as are claimed, settled, renewed, looked for or enqueued at a time.
BATCH = 10
#: Rows that run, and rows of queues that are not the large one.
RUNNING, ELSEWHERE, LANES = 500, 2_000, 60
#: What a statement may read besides: the row on either side of a range, the rows of its own lists.
SLACK = 3

DIGIT = " UNION ALL ".join(["SELECT 0 AS n", *(f"SELECT {digit}" for digit in range(1, 10))])


def numbers(rows: int) -> str:
    """Return a table of the numbers below `rows`, in SQL that every database understands."""
    places = range(len(str(rows - 1)))
    number = " + ".join(f"{10**place} * d{place}.n" for place in places)
    digits = " CROSS JOIN ".join(f"({DIGIT}) AS d{place}" for place in reversed(places))
    return f"(SELECT {number} AS number FROM {digits} WHERE {number} < :rows) AS numbers"


#: So many seconds after the first moment of 2020, as a database writes it.
LATER = {
    "postgres": "timestamptz '2020-01-01 00:00:00Z' + number * interval '1 second'",
    "mysql": "TIMESTAMP '2020-01-01 00:00:00' + INTERVAL number SECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', '2020-01-01', number || ' seconds')",
}
FUTURE = "'2091-01-01 00:00:00.000'"
PAST = "'2020-01-01 00:00:00.000'"

#: Statistics are made when a test says so, and not when a server thinks it is time.
BY_HAND = {
    "postgres": [
        "ALTER TABLE dibs_jobs SET (autovacuum_enabled = false)",
        "ALTER TABLE dibs_keys SET (autovacuum_enabled = false)",
        "ALTER TABLE dibs_duplicates SET (autovacuum_enabled = false)",
    ],
    "mysql": [
        "ALTER TABLE dibs_jobs STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0",
        "ALTER TABLE dibs_keys STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0",
        "ALTER TABLE dibs_duplicates STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0",
    ],
    "sqlite": [],
}
ANALYZE = {
    "postgres": ["ANALYZE"],
    "mysql": ["ANALYZE TABLE dibs_jobs, dibs_keys, dibs_duplicates, dibs_queues"],
    "sqlite": ["ANALYZE"],
}


def fill(db: Database, connection: OwnConnection, rows: int) -> None:
    """Write so many jobs in a few statements: half of them due in one lane, a quarter of all at the same moment."""

    def write(number: int, columns: str, values: str) -> None:
        insert = f"INSERT INTO dibs_jobs (payload, created_at, {columns})"
        connection.answer(Execute(f"{insert} SELECT '{{}}', {PAST}, {values} FROM {numbers(number)}", {"rows": number}))

    later = LATER[db.kind]
    letter = {"mysql": "CONCAT('e', number % 20)"}.get(db.kind, "'e' || (number % 20)")
    key = {"mysql": "CONCAT('k', number)"}.get(db.kind, "'k' || number")
    write(rows // 4, "queue, task, run_at", f"'q', 't', {PAST}")
    write(rows // 4, "queue, task, run_at", f"'q', 't', {later}")
    write(rows // 10, "queue, task, run_at", f"'q', 't', {FUTURE}")
    write(rows // 50, "queue, task, run_at", f"'scheduled', 't', {FUTURE}")
    write(rows // 50, "queue, task, run_at", f"'strange', 'other', {later}")
    write(ELSEWHERE, "queue, priority, task, run_at", f"{letter}, number % 3, 't', {later}")
    ended = "queue, task, run_at, status, task_key, finished_at, expires_at"
    write(rows // 5, ended, f"'q', 't', {PAST}, 'done', {key}, {PAST}, {FUTURE}")
    write(rows // 10, ended, f"'q', 't', {PAST}, 'failed', NULL, {PAST}, {later}")
    write(BATCH, "queue, task, run_at, task_key", f"'keyed', 't', {PAST}, {key.replace('k', 'z')}")
    running = "queue, task, run_at, status, claims, attempts, lease, lease_owner, lease_until"
    write(RUNNING, running, f"'q', 't', {PAST}, 'running', 1, 1, 60, 'somebody', {FUTURE}")
    write(BATCH, running, f"'q', 't', {PAST}, 'running', 1, 1, 60, 'gone', {PAST}")
    for table, columns in (
        ("dibs_duplicates (job_id, created_at)", f"id, {PAST}"),
        ("dibs_keys (task, task_key, job_id)", "task, task_key, id"),
    ):
        copy = f"INSERT INTO {table} SELECT {columns} FROM dibs_jobs WHERE task_key IS NOT NULL"
        connection.answer(Execute(copy, {}))


def analyze(db: Database) -> None:
    """Have the statistics taken now."""
    for statement in ANALYZE[db.kind]:
        db.fetch(statement) if statement.startswith("ANALYZE TABLE") else db.execute(statement)


@contextmanager
def patient_connection(db: Database) -> Iterator[OwnConnection]:
    """Yield a connection whose statements may take as long as they like."""
    connection = db.connect()
    connection.patience = None
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture(params=NAMES)
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of its own, whose statistics were taken while it was empty and which then got its rows."""
    for db in migrated(request.param, tmp_path):
        for statement in BY_HAND[db.kind]:
            db.execute(statement)
        analyze(db)
        with patient_connection(db) as connection:
            fill(db, connection, ROWS)
        yield db


Case = tuple[str, Callable[[], Op[Any]], int]


class Statements:
    """The hot ops, each with the most rows that it may read."""

    def __init__(self, db: Database, reader: Reader) -> None:
        self.dialect: Dialect = db.app().dialect
        self.reader = reader
        self.tasks = self.dialect.names(["t"])
        columns = "SELECT run_at, id FROM dibs_jobs WHERE status = 'ready' AND queue = 'q' AND run_at"
        self.amid_equal = self._position(db, f"{columns} = {PAST} ORDER BY id LIMIT 1 OFFSET {ROWS // 8}")
        self.amid = self._position(
            db, f"{columns} > {PAST} AND run_at < '2021-01-01' ORDER BY run_at, id LIMIT 1 OFFSET {ROWS // 8}"
        )
        self.claims: list[Claim] = reader.do(self.claim("q", None)())
        self.keyed: list[Claim] = reader.do(self.claim("keyed", None)())

    @staticmethod
    def _position(db: Database, statement: str) -> Position:
        return Position(*db.fetch(statement)[0])

    def claim(self, queue: str, since: Position | None) -> Callable[[], Op[list[Claim]]]:
        return lambda: self.dialect.claim(
            Wanted(Lane(queue, 0), since=since, tasks=self.tasks, worker="w", lease=60.0, start=BATCH // 2, limit=BATCH)
        )

    def in_order(self) -> Iterator[Case]:
        """Those that read a range of an index in its own order, up to a limit: whatever is sorted is read first."""
        claims = 4 * BATCH  # looked for, locked, marked; and MariaDB looks twice
        yield "claim from the beginning", self.claim("q", None), claims
        if not self.dialect.one_writer:  # there nothing stands before a cursor: nobody's commit was late
            yield "claim from the cursor, among equals", self.claim("q", self.amid_equal), claims
        yield "claim from the cursor", self.claim("q", self.amid), claims
        yield "claim where nothing is due yet", self.claim("scheduled", None), 0
        yield "claim from a cursor that is ahead of all", self.claim("scheduled", self.amid), 0
        # A step reads the lane's first row; where it takes two, one more for the queue, and one that finds none.
        yield "lanes", lambda: self.dialect.lanes(None), 3 * (LANES + 3)
        yield "lanes of some queues", lambda: self.dialect.lanes(["q", "e1", "e2", "nowhere"]), 3 * 7
        known = self.reader.do(self.dialect.lanes(None))
        # Where the dead are long in the way, what is known is left out. PostgreSQL 14 still reads some hundreds of rows.
        most = 1_000 if self.dialect.channel else 3 * (LANES + 3)
        yield "lanes beside those that are known", lambda: self.dialect.lanes(None, known=known), most
        yield "is anything due", lambda: self.dialect.first_due(Lane("q", 0), tasks=self.tasks), 1
        yield (
            "is anything due where it is not yet",
            lambda: self.dialect.first_due(Lane("scheduled", 0), tasks=self.tasks),
            0,
        )
        yield "a task that is not known", lambda: self.dialect.unknown_task(Lane("strange", 0), tasks=self.tasks), 1
        since = self.reader.do(self.dialect.time())
        unknown = partial(self.dialect.unknown_task, Lane("q", 0), tasks=self.tasks)
        yield "no task that is not known, of late", lambda: unknown(since=since), 0
        yield "no task that is not known", lambda: self.dialect.unknown_task(Lane("scheduled", 0), tasks=self.tasks), 0
        self.reader.do(self.dialect.pause("q", by="a person"))
        yield "claim where it is paused", self.claim("q", None), claims
        yield "is anything due where it is paused", lambda: self.dialect.first_due(Lane("q", 0), tasks=self.tasks), 1
        yield "no unknown task where it is paused", lambda: self.dialect.unknown_task(Lane("q", 0), tasks=self.tasks), 1
        self.reader.do(self.dialect.resume("q"))
        yield "the first that are due", lambda: self.dialect.due_now(Lane("q", 0), limit=BATCH), BATCH
        yield "the first that are not due yet", lambda: self.dialect.later(Lane("q", 0), limit=BATCH), 2 * BATCH
        yield "what has failed", lambda: self.dialect.failed_of("q", limit=BATCH), 4 * BATCH
        yield "when a run began last", lambda: self.dialect.newest_of("q", limit=BATCH), 2 * BATCH
        yield "what can be pruned", lambda: self.dialect.prunable(limit=BATCH), BATCH

    def by_id(self) -> Iterator[Case]:
        """Those that are told which rows, and those that look at all that run."""
        dialect, claims = self.dialect, self.claims
        held = [(claim.id, claim.claims) for claim in claims]
        yield "renew", lambda: dialect.renew(held, worker="w", lease=60.0), 3 * BATCH
        started = {claim.id: claim.claims for claim in claims if not claim.started}
        yield "mark as started", lambda: dialect.mark_started(started, worker="w"), 2 * BATCH
        yield "look for cancelling", lambda: dialect.cancelling([claim.id for claim in claims]), BATCH
        # Found among all that run; of those that are past the rows are locked.
        running = 2 * RUNNING
        yield "find past leases", lambda: dialect.find_past(reachable=1e9, limit=1_000), running
        yield "past leases", lambda: dialect.past_leases([claim.id for claim in claims]), 2 * BATCH
        yield "expire", lambda: dialect.expire(reachable=1e9, limit=1_000), running + 3 * BATCH
        yield "what runs of a queue", lambda: dialect.running_of("q", limit=10 * RUNNING), 3 * RUNNING
        due = self.reader.do(dialect.due_now(Lane("q", 0), limit=BATCH))
        yield "what others hold", lambda: dialect.held([job.id for job in due]), 2 * BATCH
        yield "is a lease past", lambda: dialect.past(None), running
        yield "adopt", lambda: dialect.adopt("w"), running
        verdicts = [verdict(claim, State.DONE) for claim in claims]
        yield "settle", lambda: dialect.settle(verdicts, worker="w"), 7 * BATCH
        wanted = Wanted(
            Lane("q", 0), since=self.amid, tasks=self.tasks, worker="w", lease=60.0, start=BATCH // 2, limit=BATCH
        )
        both = partial(dialect.settle_and_claim, verdicts, wanted, haste=1.0)
        yield "settle with a claim", lambda: both(), 12 * BATCH
        yield "settle one that is lost", lambda: dialect.settle(verdicts[:1], worker="somebody else"), 3
        unkept = [verdict(claim, State.DONE, keep=0.0) for claim in self.keyed]
        yield "settle those that are not kept", lambda: dialect.settle(unkept, worker="w"), 20 * BATCH
        prunable = self.reader.do(dialect.prunable(limit=BATCH))
        yield "prune", lambda: dialect.prune(prunable), 9 * BATCH

    def enqueuing(self) -> Iterator[Case]:
        """Those that write new rows, and look for their keys."""
        dialect = self.dialect
        plain = [new_job() for _ in range(BATCH)]
        fresh = [new_job(key=f"new {number}") for number in range(BATCH)]
        held = [new_job(key=f"k{number}") for number in range(BATCH)]
        yield "enqueue", lambda: dialect.enqueue(plain, tell=False), 2 * BATCH
        yield "enqueue one", lambda: dialect.enqueue(plain[:1], tell=False), 2
        # The lists are read too, some of them more than once.
        yield "enqueue with new keys", lambda: dialect.enqueue(fresh, tell=False), 8 * BATCH
        yield "enqueue with keys that are held", lambda: dialect.enqueue(held, tell=False), 6 * BATCH
        yield "enqueue with one key that is held", lambda: dialect.enqueue(held[:1], tell=False), 8


def test_hot_statements_read_their_own_rows(large: Database) -> None:
    """A claim reads its lane's range of the ready index, from its cursor to its limit; what is told ids goes by them;
    nothing is scanned and nothing sorted, with statistics of the empty table and with fresh ones."""
    odd: list[str] = []
    for statistics in ("of the empty table", "fresh"):
        if statistics == "fresh":
            analyze(large)
        with reading(large) as reader:
            statements = Statements(large, reader)
            for cases, ordered in (
                (statements.in_order(), True),
                (statements.by_id(), False),
                (statements.enqueuing(), False),
            ):
                for name, make, most in cases:
                    _, read = reader.run(make(), in_order=ordered)
                    if read.rows > most + SLACK:
                        read.odd.append(f"{read.rows} rows, not {most}")
                    odd += [f"{name}, statistics {statistics}: {what}" for what in read.odd]
    assert not odd, "\n".join(odd)


@pytest.mark.parametrize("name", NAMES)
def test_plans_for_an_empty_table_are_not_kept(name: str, tmp_path: Path) -> None:
    """A worker that started on an empty queue, and whose statements have been used since, does not scan the table when
    the queue is long, although nobody has taken statistics."""
    for db in migrated(name, tmp_path):
        queue = Queue(db)
        for statement in BY_HAND[db.kind]:
            db.execute(statement)
        analyze(db)
        connection = db.connect()
        reader = counting(db, connection)

        def rows_read() -> int:
            """Claim, renew and settle on the same connection each time; return how many rows that read."""
            queue.enqueue(*[new_job(queue="small") for _ in range(BATCH)])
            dialect, tasks = queue.dialect, queue.dialect.names(["t"])
            connection.begin()
            claims, first = reader.run(
                dialect.claim(
                    Wanted(Lane("small", 0), since=None, tasks=tasks, worker="w", lease=60.0, start=5, limit=BATCH)
                )
            )
            _, second = reader.run(
                dialect.renew([(claim.id, claim.claims) for claim in claims], worker="w", lease=60.0)
            )
            _, third = reader.run(dialect.settle([verdict(claim, State.DONE) for claim in claims], worker="w"))
            connection.commit()
            assert len(claims) == BATCH
            return first.rows + second.rows + third.rows

        for _ in range(12):  # drivers prepare what comes again, and servers keep a plan that has served for some time
            rows_read()
        with patient_connection(db) as other:
            fill(db, other, 20_000)
        wait_for(lambda: rows_read() < 20 * BATCH, within=10.0, every=0.2, what="a plan that goes by an index")
        queue.close()
        connection.close()
