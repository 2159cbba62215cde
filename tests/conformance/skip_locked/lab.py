"""A table of jobs as anybody would make it, and sessions of a driver at the server's own settings.

Nothing of dibs: what the page says about SKIP LOCKED is said about the servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from databases import NAMES, Database
from worker.users import of_driver

#: Errors, by what the page calls them.
REFUSED = {"postgres": "55P03", "mysql": 3572, "mariadb": 1205}
WAITED = {"postgres": "55P03", "mysql": 1205, "mariadb": 1205}

#: The servers here that lock rows.
LABS = [name for name in NAMES if name != "sqlite"]

JOBS = {
    "postgres": """
        CREATE TABLE jobs (
            id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'ready', priority int NOT NULL DEFAULT 0, note text);
        CREATE INDEX jobs_ready ON jobs (priority, id) WHERE status = 'ready';
        CREATE TABLE parts (job_id bigint REFERENCES jobs (id));
    """,
    "mysql": """
        CREATE TABLE jobs (
            id BIGINT PRIMARY KEY, status VARCHAR(10) NOT NULL DEFAULT 'ready', priority INT NOT NULL DEFAULT 0,
            note TEXT, KEY jobs_ready (status, priority, id)) ENGINE = InnoDB;
        CREATE TABLE parts (job_id BIGINT, FOREIGN KEY (job_id) REFERENCES jobs (id)) ENGINE = InnoDB;
    """,
}


def on(kind: str) -> pytest.MarkDecorator:
    """Have tests run on the servers of one kind: "postgres", or "mysql" for all with InnoDB."""
    return pytest.mark.parametrize("lab", [name for name in LABS if Database(name, "").kind == kind], indirect=True)


class Session:
    """A session that commits each statement by itself unless told to BEGIN, and waits for no lock for long."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._raw: Any = of_driver(db.app())
        if db.kind == "postgres":
            self._raw.autocommit = True
            self.run("SET lock_timeout = '100ms'")
        else:
            self._raw.autocommit(True)
            # The least that they take. (MariaDB takes a 0, but then its SKIP LOCKED fails: there is a test of that.)
            self.run("SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run statements; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with self._raw.cursor() as cursor:
            for statement in filter(str.strip, sql.split(";")):
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def ids(self, sql: str) -> list[int]:
        """Return the first column."""
        return [row[0] for row in self.run(sql)]

    def error(self, sql: str) -> str | int | None:
        """Return the code of the error that a statement ends in, or None. On PostgreSQL the transaction is over then."""
        try:
            self.run(sql)
        except Exception as error:
            code: str | int = getattr(error, "sqlstate", "") if self._db.kind == "postgres" else error.args[0]
            return code
        return None

    def close(self) -> None:
        self._raw.close()


class Lab:
    """The table `jobs` on one server, and as many sessions as a test wants."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.mariadb = db.name.startswith("mariadb")
        #: Which of the three it is.
        self.server = "mariadb" if self.mariadb else db.kind
        self._sessions: list[Session] = []
        self.plain = self.session()

    def session(self) -> Session:
        self._sessions.append(session := Session(self.db))
        return session

    def make(self, rows: int) -> None:
        """Make the tables anew, with jobs 1, 2, 3 … that are all ready."""
        self.drop()
        self.plain.run(JOBS[self.db.kind])
        self.plain.run(f"INSERT INTO jobs (id) VALUES {', '.join(f'({n})' for n in range(1, rows + 1))}")

    def drop(self) -> None:
        self.plain.run("DROP TABLE IF EXISTS parts, jobs, queues")

    def claim(self, limit: int, *, lock: str = "", order: str = "priority, id", where: str = "TRUE") -> str:
        """Return the claim that the page recommends, or one that differs from it in a point."""
        through = "" if self.db.kind == "postgres" or order != "priority, id" else "FORCE INDEX (jobs_ready)"
        return (
            f"SELECT id FROM jobs {through} WHERE status = 'ready' AND {where} ORDER BY {order} LIMIT {limit} "
            f"{lock or self.strongest} SKIP LOCKED"
        )

    @property
    def strongest(self) -> str:
        """What a claim locks with."""
        return "FOR NO KEY UPDATE" if self.db.kind == "postgres" else "FOR UPDATE"

    def free(self) -> set[int]:
        """Return the jobs that nobody has locked."""
        through = "" if self.db.kind == "postgres" else "FORCE INDEX (PRIMARY)"
        return set(self.plain.ids(f"SELECT id FROM jobs {through} FOR UPDATE SKIP LOCKED"))

    def plan(self, session: Session, sql: str, *, run: bool = True) -> str:
        """Return PostgreSQL's plan, with the numbers of rows if it is run."""
        options = "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF" if run else "COSTS OFF"
        return "\n".join(row[0] for row in session.run(f"EXPLAIN ({options}) {sql}"))

    def end_sessions(self) -> None:
        """Close all sessions but the lab's own; what they have open is rolled back."""
        for session in self._sessions:
            if session is not self.plain:
                session.close()
        self._sessions = [self.plain]

    def close(self) -> None:
        for session in self._sessions:
            session.close()


@contextmanager
def lab_on(db: Database) -> Iterator[Lab]:
    """Yield a lab with ten jobs; remove its tables."""
    lab = Lab(db)
    try:
        lab.make(10)
        yield lab
    finally:
        lab.end_sessions()
        lab.drop()
        lab.close()


def rows_of(plan: str, node: str) -> int:
    """Return how many rows a node of a plan gave."""
    found = re.search(rf"{node}.*?actual rows=(\d+)", plan)
    assert found, plan
    return int(found[1])
