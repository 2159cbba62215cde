"""MySQL (8.0 and later). It can't return what it changes, so rows are locked first and changed by their ids after.

Read before changing a statement:
- dibs' own connections work at READ COMMITTED: at REPEATABLE READ a claim locks the gaps that producers insert
  into. What is sent on a user's connection (enqueue, finish) meets every isolation level, and locks single rows.
- A claim reads in the order of its index: with a filesort, or over two queues, InnoDB locks every candidate before
  it sorts, and a second claimer gets nothing.
- Whatever locks names its index. `innodb` puts it in where it can be told from the condition.
- SET works from left to right, and in no order where tables are joined: no value reads a column that is set there.
- The rows that were locked are counted. Rows affected are the changed ones, or the found ones if the driver says so.
- Times are UTC_TIMESTAMP(6) and DATETIME(6): with fewer digits MySQL rounds them up, into the future.
- JSON in a list travels as a string: JSON_TABLE would make a float of 2⁶⁴. Text out of JSON_TABLE has the character
  set of the database, whatever that is, unless it is told one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec

from dibs.dialects.claims import CLAIM_COLUMNS
from dibs.dialects.innodb import AS_IT_IS, InnoDB
from dibs.dialects.mysql_enqueuing import NAME, MySQLEnqueue, text_of
from dibs.dialects.mysql_locks import MySQLLocks
from dibs.jobs import Claim, Lane, Position, Renewal, Settled, Verdict, Wanted
from dibs.ops import Op, Row, Value, execute, fetch
from dibs.retries import frees_key, keep
from dibs.states import State

_BELOW_ALL = -(2**15)  # no priority is so low

_TEXT = "LONGTEXT CHARACTER SET utf8mb4"

#: The pair (run_at, id) spelt out, because a comparison of rows is no range here: it read 5,000 rows, and locked
#: 10,000, where many jobs had the same run_at.
DUE_SINCE = """status = 'ready' AND queue = :queue AND priority = :priority
    AND (run_at > :run_at OR (run_at = :run_at AND id >= :id)) AND run_at <= {now}"""

#: What a verdict changes. `v` is the verdict, `j` the job; no verdict has a NULL status.
_SETTING = """
    j.status = v.status, j.attempts = v.attempts, j.releases = v.releases, j.lease_until = NULL,
    j.started_at = COALESCE(j.started_at, {now} - INTERVAL v.ran SECOND),
    j.run_at = COALESCE({now} + INTERVAL v.delay SECOND, j.run_at),
    j.finished_at = IF(v.keep IS NULL, NULL, {now}), j.expires_at = {now} + INTERVAL v.keep SECOND,
    j.result = v.result, j.error = COALESCE(j.cancel_reason, v.error, j.error),
    j.errors = COALESCE(v.errors, j.errors)
"""

#: By way of the jobs, since the optimizer would rather scan a few keys than go by `job_id`.
_KEYS_OF = """
    dibs_jobs AS j FORCE INDEX (PRIMARY) STRAIGHT_JOIN dibs_keys AS k FORCE INDEX (PRIMARY)
    ON k.task = j.task AND k.task_key = j.task_key AND k.job_id = j.id WHERE j.id {in_ids}
"""

#: Bytes of verdicts in one statement. Servers take 16 or 64 MB at a time, unless they are set to take less.
_MOST_BYTES = 1_000_000


class MySQL(MySQLEnqueue, MySQLLocks, InnoDB):
    name = "MySQL"
    migrations = "mysql"
    scheme = "mysql"
    oldest = (8, 0)
    beginning = "1000-01-01"  # the first day of DATETIME

    # -- claim -----------------------------------------------------------------------------------

    # From lane to lane through the index: DISTINCT would read every ready row, and (queue, priority) > (…) too.
    # MariaDB sorts the whole lane when it is to be ordered by `queue` too, of which there is one.
    NEXT_QUEUE: ClassVar[str] = """
        SELECT queue, priority FROM dibs_jobs
        WHERE status = 'ready' AND queue > :queue ORDER BY queue, priority LIMIT 1
    """
    NEXT_PRIORITY: ClassVar[str] = """
        SELECT queue, priority FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority > :priority ORDER BY priority LIMIT 1
    """

    def lanes(self, queues: Sequence[str] | None, *, known: Sequence[Lane] = ()) -> Op[list[Lane]]:
        lanes: list[Lane] = []
        if queues is not None:
            for queue in queues:
                lanes += yield from self._lanes_above(Lane(queue, _BELOW_ALL))
            return lanes
        queue = ""
        while rows := (yield from fetch(self.NEXT_QUEUE, alone=True, queue=queue)):
            lowest = Lane(*rows[0])
            lanes += [lowest, *(yield from self._lanes_above(lowest))]
            queue = lowest.queue
        return lanes

    def _lanes_above(self, lane: Lane) -> Op[list[Lane]]:
        """Return the lanes of the same queue that have a higher priority."""
        lanes: list[Lane] = []
        while rows := (yield from fetch(self.NEXT_PRIORITY, alone=True, **lane._asdict())):
            lane = Lane(*rows[0])
            lanes.append(lane)
        return lanes

    LOCK_NEXT: ClassVar[str] = f"""
        SELECT {CLAIM_COLUMNS} FROM dibs_jobs
        WHERE {DUE_SINCE} AND task {{in_tasks}}
        ORDER BY run_at, id LIMIT :limit {{for_update}} {{skip_locked}}
    """

    def lock_next(self, lane: Lane, *, since: Position, tasks: Value, limit: int) -> Op[list[Row]]:
        """Lock up to `limit` jobs of a lane that these tasks can do, from `since` on; return their CLAIM_COLUMNS."""
        return (yield from fetch(self.LOCK_NEXT, **lane._asdict(), **since._asdict(), tasks=tasks, limit=limit))

    # A pause is looked for here and not while locking: MariaDB gives error 1020, even at READ COMMITTED, where one
    # statement both reads (which makes a snapshot) and locks (a row that is newer by now). It locks no row of dibs_queues.
    CLAIM: ClassVar[str] = """
        UPDATE dibs_jobs SET
            status = 'running', claims = claims + 1, lease_owner = :worker, lease = :lease,
            lease_until = {now} + INTERVAL :lease SECOND,
            attempts = attempts + (id IN :starting), started_at = IF(id IN :starting, {now}, NULL)
        WHERE id {in_ids} AND status = 'ready'
          AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE queue = :queue AND paused_at IS NOT NULL)
    """

    def claim(self, wanted: Wanted, *, turn: float | None = None) -> Op[list[Claim]]:
        del turn  # here, rows that others claim hinder nobody
        rows = yield from self.lock_next(
            wanted.lane,
            since=wanted.since or Position(self.beginning, 0),
            tasks=wanted.tasks,
            limit=wanted.limit,
        )
        claims = self.claims_from(rows)
        for place, claim in enumerate(claims):
            claim.started = place < wanted.start
            claim.attempts += claim.started
            claim.claims += 1
        claims = [claim for claim in claims if claim.started or not claim.crashes]
        if not claims:
            return []
        changed = yield from execute(
            self.CLAIM,
            ids=self.ids(claim.id for claim in claims),
            starting=tuple(claim.id for claim in claims if claim.started) or (0,),
            queue=wanted.lane.queue,
            worker=wanted.worker,
            lease=wanted.lease,
        )
        return claims if changed else []  # it is paused

    # -- renew and settle ------------------------------------------------------------------------

    LOCK_OURS: ClassVar[str] = """
        SELECT id, claims, cancel_requested_at IS NOT NULL, task_key, key_until, retention
        FROM dibs_jobs
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker ORDER BY id {for_update} {skip_locked}
    """

    def _lock_ours(self, held: dict[int, int], *, worker: str) -> Op[dict[int, Row]]:
        """Lock the rows of claims `(id, claims)` that are still ours and free; return them by id."""
        rows = yield from fetch(self.LOCK_OURS, ids=self.ids(held), worker=worker)
        return {row[0]: row for row in rows if row[1] == held[row[0]]}

    RENEW: ClassVar[str] = """
        UPDATE dibs_jobs SET lease = :lease, lease_until = {now} + INTERVAL :lease SECOND
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker
    """

    def renew(self, held: Sequence[tuple[int, int]], *, worker: str, lease: float) -> Op[Renewal]:
        claims = dict(held)
        ours = yield from self._lock_ours(claims, worker=worker)
        if ours:
            yield from execute(self.RENEW, ids=self.ids(ours), worker=worker, lease=lease)
        lost: set[int] = set()
        if missing := {job_id: mine for job_id, mine in held if job_id not in ours}:
            looked = yield from self.look(missing, worker=worker, gone=Settled.LOST)
            lost = {job_id for job_id, settled in looked.items() if settled is Settled.LOST}
        return Renewal(set(ours), lost, {row[0] for row in ours.values() if row[2]})

    # 30 µs a job in batches of 100. With a CASE for each column 37; with the jobs before the list 230; written with
    # ON DUPLICATE KEY UPDATE 28, and no fence. For one verdict the list's temporary table would double the time.
    SETTLE: ClassVar[str] = f"""
        UPDATE JSON_TABLE(:verdicts, '$[*]' COLUMNS (
            id BIGINT PATH '$.id', claims BIGINT PATH '$.claims', status {NAME} PATH '$.status',
            attempts INT PATH '$.attempts', releases INT PATH '$.releases', delay DOUBLE PATH '$.delay',
            ran DOUBLE PATH '$.ran', keep DOUBLE PATH '$.keep', result {_TEXT} PATH '$.result',
            error {_TEXT} PATH '$.error', errors {_TEXT} PATH '$.errors'
        )) AS v STRAIGHT_JOIN dibs_jobs AS j FORCE INDEX (PRIMARY) ON j.id = v.id
        SET {_SETTING}
        WHERE j.status = 'running' AND j.claims = v.claims AND j.lease_owner = :worker
    """
    SETTLE_ONE: ClassVar[str] = f"""
        UPDATE dibs_jobs AS j FORCE INDEX (PRIMARY) SET {_SETTING.replace("v.", ":")}
        WHERE j.id = :id AND j.status = 'running' AND j.claims = :claims AND j.lease_owner = :worker
    """
    SETTLE_UNKEPT: ClassVar[str] = """
        DELETE FROM dibs_jobs WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker
    """

    def settle(self, verdicts: Sequence[Verdict], *, worker: str, haste: float | None = None) -> Op[dict[int, Settled]]:
        del haste  # here, what is locked before it is written costs no more
        ours = yield from self._lock_ours({verdict.id: verdict.claims for verdict in verdicts}, worker=worker)
        kept: list[dict[str, Value]] = []
        unkept: list[int] = []
        frees: list[int] = []
        for verdict in verdicts:
            if verdict.id not in ours:
                continue
            _, _, cancelling, key, key_until, retention = ours[verdict.id]
            status = State.CANCELLED if cancelling else verdict.status
            is_unkept = verdict.status is not State.READY and verdict.keep <= 0
            if is_unkept:
                unkept.append(verdict.id)
            else:
                keeping = keep(status, retention=retention, keyed=key is not None) if cancelling else verdict.keep
                kept.append(_carried_out(verdict, status, keeping))
            if key is not None and (is_unkept or frees_key(status, key_until=key_until)):
                frees.append(verdict.id)
        if len(kept) == 1:
            yield from execute(self.SETTLE_ONE, alone=False, worker=worker, **kept[0])
        else:
            for part in _parts(kept):
                yield from execute(self.SETTLE, verdicts=part, worker=worker)
        if frees:
            yield from self.free_keys(frees)
        if forgotten := set(unkept) & set(frees):
            yield from self.forget_duplicates(forgotten)
        if unkept:
            yield from execute(self.SETTLE_UNKEPT, ids=self.ids(unkept), worker=worker)
        answers = dict.fromkeys(ours, Settled.NOW)
        if missing := {verdict.id: verdict.claims for verdict in verdicts if verdict.id not in ours}:
            answers |= yield from self.look(missing, worker=worker)
        return answers

    # A duplicate in somebody's open transaction may hold the row of a key. Nothing waits for it: such a key is written
    # down, by a read that locks nothing, and upkeep lets go of it later.
    LOCK_KEYS: ClassVar[str] = f"SELECT k.job_id FROM {_KEYS_OF} {{for_update}} {{skip_locked}}"
    FREE_KEYS: ClassVar[str] = f"DELETE k FROM {_KEYS_OF}"
    LOOSEN: ClassVar[str] = f"""
        INSERT INTO dibs_loose_keys (task, task_key, job_id) SELECT k.task, k.task_key, k.job_id FROM {_KEYS_OF}
    """

    def free_keys(self, job_ids: Collection[int]) -> Op[None]:
        """Let go of the keys of jobs whose rows we hold; of those that somebody's transaction holds, when it ends."""
        rows = yield from fetch(self.LOCK_KEYS, ids=self.ids(job_ids))
        free = {row[0] for row in rows}
        if free:
            yield from execute(self.FREE_KEYS, ids=self.ids(free))
        if held := set(job_ids) - free:
            yield from execute(self.LOOSEN, ids=self.ids(held))

    def forget_duplicates(self, job_ids: Collection[int]) -> Op[None]:
        """Delete the records of these jobs' duplicates, except what is not committed yet."""
        rows = yield from fetch(self.LOCK_DUPLICATES, ids=self.ids(job_ids))
        if rows:
            yield from execute(self.DROP_FOLDED, ids=self.ids(row[0] for row in rows))

    FINISH: ClassVar[str] = f"""
        {AS_IT_IS} UPDATE dibs_jobs SET
            status = 'done', lease_until = NULL, finished_at = {{now}}, started_at = COALESCE(started_at, {{now}}),
            attempts = :attempts, expires_at = {{now}} + INTERVAL :keep SECOND, result = :result
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
          AND cancel_requested_at IS NULL
    """
    KEY_OF: ClassVar[str] = "SELECT task, task_key FROM dibs_jobs WHERE id = :id AND task_key IS NOT NULL"
    LOOSEN_ONE: ClassVar[str] = """
        INSERT INTO dibs_loose_keys (task, task_key, job_id) VALUES (:task, :task_key, :job_id)
    """

    def finish(
        self,
        job_id: int,
        *,
        claims: int,
        worker: str,
        attempts: int,
        result: str | None,
        keep: float,
        frees_key: bool,
    ) -> Op[bool]:
        finished = yield from execute(
            self.FINISH, id=job_id, claims=claims, worker=worker, attempts=attempts, result=result, keep=keep
        )
        # The key is locked by its primary key, which the job's row names: that is ours by now. By `job_id` the gap beside it
        # would be locked, at SERIALIZABLE by a plain read too.
        for task, key in (yield from fetch(self.KEY_OF, id=job_id)) if finished and frees_key else ():
            free = yield from fetch(self.LOCK_LOOSE, task=task, task_key=key, job_id=job_id)
            let_go = self.FREE_LOOSE if free else self.LOOSEN_ONE
            yield from execute(let_go, task=task, task_key=key, job_id=job_id)
        return finished > 0


def _carried_out(verdict: Verdict, status: State, keeping: float) -> dict[str, Value]:
    """Return what `_SETTING` wants to know of a verdict that leads to this status."""
    return {
        "id": verdict.id,
        "claims": verdict.claims,
        "status": str(status),
        "attempts": verdict.attempts,
        "releases": verdict.releases,
        "delay": verdict.delay if status is State.READY else None,
        "ran": verdict.ran,
        "keep": None if status is State.READY else keeping,
        "result": text_of(verdict.result),
        "error": verdict.error,
        "errors": text_of(verdict.errors),
    }


def _parts(kept: Iterable[dict[str, Value]]) -> Iterator[str]:
    """Return the verdicts as JSON lists, each of which fits into a statement."""
    part: list[bytes] = []
    size = 0
    for verdict in map(msgspec.json.encode, kept):
        if size + len(verdict) > _MOST_BYTES and part:
            yield f"[{b','.join(part).decode()}]"
            part, size = [], 0
        part.append(verdict)
        size += len(verdict)
    if part:
        yield f"[{b','.join(part).decode()}]"
