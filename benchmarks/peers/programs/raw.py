"""The best raw SQL that we can write on dibs' tables: no fence, no lease, no task to call, nobody else to heed.

One connection finishes the batch that it has and claims the next in one transaction, keeping the rows. It starts its
search where the last batch began (the cursor of dibs' claims), so it never walks over what is done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from peers.programs.program import Program

#: Enqueues in one transaction, as in the program of dibs.
TOGETHER = 100
#: Rows in one INSERT.
CHUNK = 1_000

program = Program()
parts = urlsplit(program.url)
Batch = list[tuple[int, Any, str]]  # id, run_at, payload

# One statement, so one round trip and one commit a batch.
POSTGRES_STEP = """
    WITH finished AS (
        UPDATE dibs_jobs SET status = 'done', finished_at = clock_timestamp() WHERE id = ANY(%(ids)s)
    ), picked AS MATERIALIZED (
        SELECT id FROM dibs_jobs
        WHERE status = 'ready' AND queue = 'default' AND priority = 0
          AND (run_at, id) >= (%(run_at)s, %(id)s) AND run_at <= now()
        ORDER BY run_at, id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1
    WHERE id = ANY(ARRAY(SELECT id FROM picked)) RETURNING id, run_at, payload::text
"""

SQLITE_FINISH = """
    UPDATE dibs_jobs SET status = 'done', finished_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
    WHERE id IN (SELECT value FROM json_each(?))
"""
SQLITE_CLAIM = """
    UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id IN (
        SELECT id FROM dibs_jobs
        WHERE status = 'ready' AND queue = 'default' AND priority = 0
          AND (run_at, id) >= (?, ?) AND run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')
        ORDER BY run_at, id LIMIT ?)
    RETURNING id, run_at, payload
"""

MYSQL_FINISH = "UPDATE dibs_jobs SET status = 'done', finished_at = UTC_TIMESTAMP(6) WHERE id IN %s"
MYSQL_CLAIM = """
    SELECT id, run_at, payload FROM dibs_jobs
    WHERE status = 'ready' AND queue = 'default' AND priority = 0
      AND (run_at > %s OR (run_at = %s AND id >= %s)) AND run_at <= UTC_TIMESTAMP(6)
    ORDER BY run_at, id LIMIT %s FOR UPDATE SKIP LOCKED
"""
MYSQL_MARK = "UPDATE dibs_jobs SET status = 'running', attempts = attempts + 1 WHERE id IN %s"

COLUMNS = "queue, task, payload, priority, max_attempts, run_at, created_at"
NOW = {
    "postgresql": "now()",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "mysql": "UTC_TIMESTAMP(6)",
    "mariadb": "UTC_TIMESTAMP(6)",
}


def connect() -> Any:
    """Return a connection in autocommit mode, of the driver that dibs uses."""
    if parts.scheme == "postgresql":
        return psycopg.connect(program.url, autocommit=True)
    if parts.scheme == "sqlite":
        file = sqlite3.connect(parts.path.removeprefix("/"), isolation_level=None)
        file.execute(f"PRAGMA synchronous = {'normal' if 'synchronous=normal' in parts.query else 'full'}")
        return file
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port, user=parts.username, password=parts.password or "", database=parts.path[1:],
        autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


# -- work ----------------------------------------------------------------------------------------


def postgres_step(connection: Any, done: Sequence[int], since: tuple[Any, int], limit: int) -> Batch:
    values = {"ids": list(done), "run_at": since[0] or "-infinity", "id": since[1], "limit": limit}
    batch: Batch = connection.execute(POSTGRES_STEP, values, prepare=True).fetchall()
    return batch


def sqlite_step(connection: Any, done: Sequence[int], since: tuple[Any, int], limit: int) -> Batch:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(SQLITE_FINISH, [json.dumps(done)])
    batch: Batch = connection.execute(SQLITE_CLAIM, [since[0] or "", since[1], limit]).fetchall()
    connection.execute("COMMIT")
    return batch


def mysql_step(connection: Any, done: Sequence[int], since: tuple[Any, int], limit: int) -> Batch:
    cursor = connection.cursor()
    connection.begin()
    if done:
        cursor.execute(MYSQL_FINISH, [tuple(done)])
    since_at = since[0] or "1970-01-01"
    cursor.execute(MYSQL_CLAIM, [since_at, since_at, since[1], limit])
    batch = list(cursor.fetchall())
    if batch:
        cursor.execute(MYSQL_MARK, [tuple(row[0] for row in batch)])
    connection.commit()
    return batch


STEPS: dict[str, Callable[[Any, Sequence[int], tuple[Any, int], int], Batch]] = {
    "postgresql": postgres_step,
    "sqlite": sqlite_step,
    "mysql": mysql_step,
    "mariadb": mysql_step,
}


def work() -> None:
    connection, step = connect(), STEPS[parts.scheme]
    limit = program.settings["batch"]
    program.ready()
    batch = step(connection, [], (None, 0), limit)
    while batch:
        for _, _, payload in batch:
            program.run(json.loads(payload)["number"])
        first = min((run_at, job_id) for job_id, run_at, _ in batch)
        batch = step(connection, [row[0] for row in batch], first, limit)
    program.stop.wait()
    program.end()


# -- enqueue -------------------------------------------------------------------------------------


def enqueue() -> None:
    connection = connect()
    cursor = connection.cursor()
    mark = "?" if parts.scheme == "sqlite" else "%s"
    row = f"('default', 'job', {mark}, 0, 12, {NOW[parts.scheme]}, {NOW[parts.scheme]})"
    one = f"INSERT INTO dibs_jobs ({COLUMNS}) VALUES {row}"
    payloads = [f'{{"number":{number}}}' for number in range(program.jobs)]
    match program.asked["how"]:
        case "bulk":
            with program.clock():
                cursor.execute("BEGIN")
                for first in range(0, program.jobs, CHUNK):
                    chunk = payloads[first : first + CHUNK]
                    cursor.execute(one + f", {row}" * (len(chunk) - 1), chunk)
                cursor.execute("COMMIT")
        case "single":
            with program.clock():
                for payload in payloads:
                    cursor.execute(one, [payload])
        case "transaction":
            with program.clock():
                for first in range(0, program.jobs, TOGETHER):
                    cursor.execute("BEGIN")
                    for payload in payloads[first : first + TOGETHER]:
                        cursor.execute(one, [payload])
                    cursor.execute("COMMIT")
    connection.close()


match program.asked["do"]:
    case "enqueue":
        enqueue()
    case "work":
        work()
