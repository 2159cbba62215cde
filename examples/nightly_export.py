"""A nightly export that goes on where it was when its worker was killed: no row is missing, and none is there twice.

    pip install "dibs[postgres]"
    export DATABASE_URL=postgresql://me@localhost/shop
    dibs migrate
    python nightly_export.py sample                 # makes a table with 100,000 orders of today
    python nightly_export.py request 2026-11-30     # as cron would each night, with the day that has ended
    dibs worker nightly_export:queue

Kill the worker with -9 in the middle, and start another one: within two leases (of 60 s; `--lease 5` for trying) it
goes on at the last checkpoint. Workers on several machines need a folder that all of them see.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from datetime import date
from pathlib import Path

import psycopg

from dibs import Dibs, current_job

DATABASE_URL = os.environ["DATABASE_URL"]
EXPORTS = Path(os.environ.get("EXPORTS", "exports"))
ROWS = int(os.environ.get("ROWS_AT_A_TIME", "1000"))

queue = Dibs(DATABASE_URL)


@queue.task(queue="exports")
def export_day(day: date) -> int:
    """Write the orders of a day to a file; return how many there are."""
    job = current_job()
    done = job.last_checkpoint or {"id": 0, "rows": 0, "bytes": 0}
    EXPORTS.mkdir(exist_ok=True)
    partial = EXPORTS / f"{day}.csv.partial"
    partial.touch()
    with psycopg.connect(DATABASE_URL, autocommit=True) as connection, partial.open("r+b") as file:
        (total,) = connection.execute("SELECT count(*) FROM orders WHERE day = %s", [day]).fetchone() or (0,)
        # What was written after the last checkpoint is cut off: it will be written again.
        file.truncate(done["bytes"])
        file.seek(done["bytes"])
        while True:
            job.check()
            rows = connection.execute(
                "SELECT id, item, total FROM orders WHERE day = %s AND id > %s ORDER BY id LIMIT %s",
                [day, done["id"], ROWS],
            ).fetchall()
            if not rows:
                break
            file.write(lines(rows))
            file.flush()
            os.fsync(file.fileno())  # the checkpoint says that it is there, so it must be
            done = {"id": rows[-1][0], "rows": done["rows"] + len(rows), "bytes": file.tell()}
            job.checkpoint(done)
            job.progress(done["rows"] / max(total, done["rows"]), note=f"{done['rows']} rows")
    partial.replace(EXPORTS / f"{day}.csv")
    return int(done["rows"])


def lines(rows: list[tuple[object, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def request(day: date) -> int:
    """Note that a day's export was asked for, and enqueue it, in one transaction; return the job's id."""
    with psycopg.connect(DATABASE_URL) as connection, queue.transaction(connection):
        job = export_day.using(key=str(day)).enqueue(day)  # asked for twice, it is done once
        noted = connection.execute(
            "INSERT INTO exports (day, job) SELECT day, %s FROM orders WHERE day = %s LIMIT 1 ON CONFLICT DO NOTHING",
            [job.id, day],
        )
        if job.created and not noted.rowcount:
            raise SystemExit(f"there are no orders of {day}")  # rolls back, and takes the job away
    return job.id


def sample(number: int) -> None:
    """Make orders of today, to try this with."""
    with psycopg.connect(DATABASE_URL) as connection:
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, day date NOT NULL, item text NOT NULL, total numeric NOT NULL)"
        )
        connection.execute("CREATE TABLE exports (day date PRIMARY KEY, job bigint NOT NULL)")
        connection.execute(
            "INSERT INTO orders SELECT n, current_date, 'item ' || n, n / 100.0 FROM generate_series(1, %s) AS n",
            [number],
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sample"]:
            sample(100_000)
        case ["request", day]:
            print(f"job {request(date.fromisoformat(day))}")
        case _:
            sys.exit("usage: nightly_export.py sample | nightly_export.py request YYYY-MM-DD")
