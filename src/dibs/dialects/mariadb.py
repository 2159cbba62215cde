"""MariaDB (10.6 and later): MySQL's statements, and what it does differently."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, cast

import msgspec

from dibs.dialects.claims import CLAIM_COLUMNS
from dibs.dialects.mariadb_locks import MariaDBLocks
from dibs.dialects.mysql import DUE_SINCE, MySQL
from dibs.jobs import Lane, Position
from dibs.ops import Op, Row, Value, fetch


class MariaDB(MariaDBLocks, MySQL):
    name = "MariaDB"
    migrations = "mariadb"
    scheme = "mariadb"
    oldest = (10, 6)

    # MariaDB keeps a lock on what it read through a secondary index and then refused (MySQL lets go of it, and so does
    # MariaDB if it read by the primary key): a worker that lacked the task of 100,000 jobs held them all while it
    # looked for others. So nothing is refused while it locks. The usual claim is one statement for all that.
    LOCK_NEXT: ClassVar[str] = f"""
        SELECT {CLAIM_COLUMNS} FROM dibs_jobs
        WHERE {DUE_SINCE}
        ORDER BY run_at, id LIMIT :limit {{for_update}} {{skip_locked}}
    """
    FIND_FURTHER: ClassVar[str] = f"""
        SELECT run_at, id FROM dibs_jobs
        WHERE {DUE_SINCE} AND task {{in_tasks}}
        ORDER BY run_at, id LIMIT :limit
    """
    # By the same index as all claims. By their ids the rows would be locked, and not their places in that index: another
    # claim locks those and skips the rows, we wait for it, and MariaDB sees a deadlock while the other looks at our rows.
    LOCK_FURTHER: ClassVar[str] = f"""
        SELECT {CLAIM_COLUMNS} FROM JSON_TABLE(:found, '$[*]' COLUMNS (
            found_at DATETIME(6) PATH '$[0]', found_id BIGINT PATH '$[1]'
        )) AS found STRAIGHT_JOIN dibs_jobs FORCE INDEX (dibs_jobs_ready)
        ON status = 'ready' AND queue = :queue AND priority = :priority AND run_at = found_at AND id = found_id
        {{for_update}} {{skip_locked}}
    """

    def lock_next(self, lane: Lane, *, since: Position, tasks: Value, limit: int) -> Op[list[Row]]:
        """Lock the next jobs, whatever they are; look further, without locking, where others' tasks are in the way."""
        # A scan that comes to the end of its lane locks what stands behind it in the index too, such as a running job
        # of another worker, which nobody can then take back while we are frozen or cut off. So an empty lane is only read.
        if not (yield from fetch(self.FIND_FURTHER, **lane._asdict(), **since._asdict(), tasks=tasks, limit=1)):
            return []
        known = frozenset(cast("Collection[str]", tasks))
        head = yield from fetch(self.LOCK_NEXT, **lane._asdict(), **since._asdict(), limit=limit)
        ours = [row for row in head if row[2] in known]
        if len(ours) == len(head) or len(head) < limit:
            return ours
        since = Position(head[-1][10], head[-1][0] + 1)
        while missing := limit - len(ours):
            rows = yield from fetch(self.FIND_FURTHER, **lane._asdict(), **since._asdict(), tasks=tasks, limit=missing)
            if rows:
                found = msgspec.json.encode([(str(run_at), job_id) for run_at, job_id in rows]).decode()
                ours += yield from fetch(self.LOCK_FURTHER, **lane._asdict(), found=found)
                since = Position(rows[-1][0], rows[-1][1] + 1)
            if len(rows) < missing:
                break
        return ours
