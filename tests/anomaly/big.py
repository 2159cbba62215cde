"""Large tables, written in a few statements, as they look after a queue has been in use for a while.

A million rows, or as many as DIBS_TEST_ANOMALY_ROWS says.
"""

from __future__ import annotations

import os

from conformance.test_plans import ANALYZE, FUTURE, PAST, numbers, patient_connection
from databases import Database
from dibs.ops import Execute

#: How many rows a large table has; the tests take fractions of it.
ROWS = int(os.environ.get("DIBS_TEST_ANOMALY_ROWS") or 1_000_000)

#: So many seconds from now, as a database writes it.
FROM_NOW = {
    "postgres": "now() + ({}) * interval '1 second'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL ({}) SECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', ({}) || ' seconds')",
}
TEXT = {"mysql": "CONCAT('{}', {})"}


def from_now(db: Database, seconds: str | int) -> str:
    """Return SQL for a moment so many seconds from now; `number` is the number of the row."""
    return FROM_NOW[db.kind].format(seconds)


def numbered(db: Database, prefix: str, number: str) -> str:
    """Return SQL for a text that ends in a number."""
    return TEXT.get(db.kind, "'{}' || ({})").format(prefix, number)


def write(db: Database, rows: int, **values: str) -> None:
    """Write so many jobs of the task `note`, whose columns have these values (SQL, with `number` in it)."""
    columns = {"payload": "'{}'", "task": "'note'", "created_at": PAST, "queue": "'default'", "run_at": PAST} | values
    with patient_connection(db) as connection:
        text = f"INSERT INTO dibs_jobs ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {numbers(rows)}"
        connection.answer(Execute(text, {"rows": rows}))


def ended(db: Database, rows: int, status: str, *, expires: str = FUTURE, **values: str) -> None:
    """Write so many jobs that have ended."""
    write(db, rows, status=f"'{status}'", finished_at=PAST, expires_at=expires, attempts="1", claims="1", **values)


def running(db: Database, rows: int, *, until: str = FUTURE, **values: str) -> None:
    """Write so many jobs that somebody holds."""
    claimed = {"claims": "1", "attempts": "1", "lease": "60", "lease_owner": "'somebody'", "started_at": PAST}
    write(db, rows, status="'running'", lease_until=until, **claimed | values)


def analyze(db: Database) -> None:
    """Have statistics taken."""
    for statement in ANALYZE[db.kind]:
        db.fetch(statement) if statement.startswith("ANALYZE TABLE") else db.execute(statement)
