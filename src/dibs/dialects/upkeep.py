"""What one worker does for all: take back claims whose lease ran out, prune, fold; and what a worker asks about
its own claims. Alike on every database.

Candidates are found by a plain read and locked by their ids after, with SKIP LOCKED: a scan that locks what it
reads would hold rows that it then does not want (measured: deadlocks with settling on databases that lock
through secondary indexes; `WHERE status = … AND lease_until < …` as an UPDATE is the usual culprit).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from dibs.dialects.endings import Endings
from dibs.jobs import Expired, Lane, Owner, Past, Position, Settled
from dibs.ops import Op, Value, execute, fetch
from dibs.retries import after_expiry, frees_key, keep
from dibs.states import State
from dibs.stored import errors_of


class Upkeep(Endings):
    """Ops of the worker's chores."""

    #: As a position has it, a moment before all others.
    beginning: ClassVar[str]

    MOVE_CHORE: ClassVar[str] = """
        UPDATE dibs_chores SET next_at = {soon} WHERE chore = :chore AND next_at <= {now}
    """

    def chore(self, name: str, *, every: float) -> Op[bool]:
        """Is this chore due, and this worker the one that does it now? It is due again `every` seconds later."""
        changed = yield from execute(self.MOVE_CHORE, alone=True, chore=name, delay=every)
        return changed > 0

    # `lease`: an owner had its whole lease of a reachable database in which to renew (see worker/upkeep).
    FIND_EXPIRED: ClassVar[str] = """
        SELECT id FROM dibs_jobs
        WHERE status = 'running' AND lease_until < {now} AND lease <= :reachable AND id > :after ORDER BY id LIMIT :limit
    """
    LOCK_EXPIRED: ClassVar[str] = """
        SELECT id, task, queue, attempts, max_attempts, crashes, claims, lease_owner, task_key, key_until, retention,
               errors, CASE WHEN cancel_requested_at IS NULL THEN 0 ELSE 1 END, cancel_reason, meta
        FROM dibs_jobs
        WHERE id {in_ids} AND status = 'running' AND lease_until < {now} ORDER BY id {for_update} {skip_locked}
    """
    # Due now and not at its old run_at: every re-entry stands behind the claimers' cursors' present.
    # Its owner's name goes: what that worker still writes is then told from what it wrote itself (see `look`).
    TAKE_BACK: ClassVar[str] = """
        UPDATE dibs_jobs SET status = 'ready', run_at = {now}, crashes = crashes + 1,
            lease_owner = NULL, lease_until = NULL, error = :error
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :owner AND lease_until < {now}
    """
    END_EXPIRED: ClassVar[str] = """
        UPDATE dibs_jobs SET status = :status, crashes = crashes + 1, lease_owner = NULL, lease_until = NULL,
            finished_at = {now}, expires_at = {soon}, error = coalesce(cancel_reason, :error), errors = :errors
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :owner AND lease_until < {now}
    """

    LOCK_PAST: ClassVar[str] = """
        SELECT id, claims, lease, queue FROM dibs_jobs
        WHERE id {in_ids} AND status = 'running' AND lease_until < {now} ORDER BY id {for_update} {skip_locked}
    """

    def find_past(self, *, reachable: float, limit: int, after: int = 0) -> Op[list[int]]:
        """Return the jobs with ids above `after` whose leases are past, whoever holds their rows, the lowest first. Mostly
        there are none, and this is all."""
        rows = yield from fetch(self.FIND_EXPIRED, alone=True, reachable=reachable, limit=limit, after=after)
        return [row[0] for row in rows]

    def past_leases(self, job_ids: Collection[int]) -> Op[list[Past]]:
        """Return the claims among these that `expire` would take back now, since nobody holds their rows."""
        rows = yield from fetch(self.LOCK_PAST, ids=self.ids(job_ids))
        return [Past(job_id, claims, float(lease), queue) for job_id, claims, lease, queue in rows]

    def expire(
        self, *, reachable: float, limit: int, only: Collection[tuple[int, int]] | None = None
    ) -> Op[list[Expired]]:
        """Take back claims whose lease ran out, whose owners had `reachable` seconds in which to renew it; with
        `only`, of these claims `(id, claims)` alone. What somebody's transaction holds is passed over.
        """
        if only is None:
            found = yield from fetch(self.FIND_EXPIRED, reachable=reachable, limit=limit, after=0)
            candidates = [row[0] for row in found]
        else:
            candidates = [job_id for job_id, _ in only]
        if not candidates:
            return []
        rows = yield from fetch(self.LOCK_EXPIRED, ids=self.ids(candidates))
        expired: list[Expired] = []
        back: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            (job_id, task, queue, attempts, most, crashes, claims, owner, key, key_until, retention, errors) = row[:12]
            cancel, cancel_reason, meta = row[12:]
            if only is not None and (job_id, claims) not in only:
                continue  # claimed anew since
            status, reason = after_expiry(
                attempts=attempts, max_attempts=most, crashes=crashes + 1, cancelling=bool(cancel)
            )
            error = f"{reason} (last held by {owner})" if reason else f"its lease ran out: {owner} went quiet"
            told = cancel_reason or error if status is State.CANCELLED else error
            expired.append(Expired(job_id, task, queue, owner, status, attempts, most, key, told, meta))
            if status is State.READY:
                back[owner].append(job_id)
                continue
            yield from execute(
                self.END_EXPIRED,
                id=job_id,
                claims=claims,
                owner=owner,
                status=str(status),
                delay=keep(status, retention=retention, keyed=key is not None),
                error=error,
                errors=with_error(errors, attempt=attempts, error=error),
            )
            if key is not None and frees_key(status, key_until=key_until):
                yield from self.free_keys([job_id])
        for owner, job_ids in back.items():
            error = f"its lease ran out: {owner} went quiet"
            yield from execute(self.TAKE_BACK, ids=self.ids(job_ids), owner=owner, error=error)
        yield from self.tell(sorted({job.queue for job in expired if job.status is State.READY}))
        return expired

    def tell(self, queues: Sequence[str]) -> Op[None]:
        """Wake the workers that wait for these queues, at commit, where the database can."""
        yield from ()

    FIND_PRUNABLE: ClassVar[str] = """
        SELECT id FROM dibs_jobs WHERE expires_at < {now} ORDER BY expires_at LIMIT :limit
    """
    LOCK_PRUNABLE: ClassVar[str] = """
        SELECT id FROM dibs_jobs
        WHERE id {in_ids} AND expires_at < {now} AND status IN ('done', 'failed', 'cancelled')
        ORDER BY id {for_update} {skip_locked}
    """
    PRUNE_JOBS: ClassVar[str] = "DELETE FROM dibs_jobs WHERE id {in_ids} AND status IN ('done', 'failed', 'cancelled')"

    def prunable(self, *, limit: int) -> Op[list[int]]:
        """Return the ids of finished rows whose retention is over."""
        rows = yield from fetch(self.FIND_PRUNABLE, alone=True, limit=limit)
        return [row[0] for row in rows]

    def prune(self, ids: Iterable[int]) -> Op[int]:
        """Delete those of these rows whose retention is over and that nobody holds; return how many."""
        rows = yield from fetch(self.LOCK_PRUNABLE, ids=self.ids(ids))
        if not rows:
            return 0
        mine = self.ids(row[0] for row in rows)
        yield from self.free_keys([row[0] for row in rows])
        yield from self.forget_duplicates([row[0] for row in rows])
        return (yield from execute(self.PRUNE_JOBS, ids=mine))

    POSTPONE: ClassVar[str] = """
        UPDATE dibs_jobs SET expires_at = {soon} WHERE id {in_ids} AND status IN ('done', 'failed', 'cancelled')
    """

    def postpone(self, ids: Iterable[int], *, delay: float) -> Op[int]:
        """Keep finished rows a while longer: something of the user's refers to them and they can't be deleted."""
        return (yield from execute(self.POSTPONE, ids=self.ids(ids), delay=delay))

    # By the index of job_id alone. Only jobs that have several rows: the rows of the others are folded already.
    FIND_REPEATED: ClassVar[str] = """
        SELECT job_id FROM dibs_duplicates GROUP BY job_id HAVING count(*) > 1 LIMIT :limit
    """
    LOCK_DUPLICATES: ClassVar[str] = """
        SELECT id, job_id, times FROM dibs_duplicates WHERE job_id {in_ids} ORDER BY id {for_update} {skip_locked}
    """
    COUNT_FOLDED: ClassVar[str] = """
        INSERT INTO dibs_duplicates (job_id, times, created_at) VALUES (:job_id, :times, {now})
    """
    DROP_FOLDED: ClassVar[str] = "DELETE FROM dibs_duplicates WHERE id {in_ids}"
    FIND_LOOSE: ClassVar[str] = """
        SELECT id, task, task_key, job_id FROM dibs_loose_keys
        WHERE id > :after ORDER BY id LIMIT :limit {for_update} {skip_locked}
    """
    LOCK_LOOSE: ClassVar[str] = """
        SELECT job_id FROM dibs_keys
        WHERE task = :task AND task_key = :task_key AND job_id = :job_id {for_update} {skip_locked}
    """
    KEY_IS_THERE: ClassVar[str] = (
        "SELECT 1 FROM dibs_keys WHERE task = :task AND task_key = :task_key AND job_id = :job_id"
    )
    FREE_LOOSE: ClassVar[str] = "DELETE FROM dibs_keys WHERE task = :task AND task_key = :task_key AND job_id = :job_id"
    DROP_LOOSE: ClassVar[str] = "DELETE FROM dibs_loose_keys WHERE id {in_ids}"

    def fold(self, *, limit: int) -> Op[int]:
        """Sum the duplicates of each job into one row, and let go of keys that were held up; return how many of both."""
        repeated = yield from fetch(self.FIND_REPEATED, limit=limit)
        times: dict[int, int] = defaultdict(int)
        if repeated:
            rows = yield from fetch(self.LOCK_DUPLICATES, ids=self.ids(row[0] for row in repeated))
            for _, job_id, number in rows:
                times[job_id] += number
            for job_id, number in times.items():
                yield from execute(self.COUNT_FOLDED, job_id=job_id, times=number)
            if rows:
                yield from execute(self.DROP_FOLDED, ids=self.ids(row[0] for row in rows))
        return len(times) + (yield from self._free_loose(limit=limit))

    def _free_loose(self, *, limit: int) -> Op[int]:
        """Let go of so many keys that were held up. Those that still are must not hide the ones behind them."""
        freed: list[int] = []
        last = 0
        while True:
            loose = yield from fetch(self.FIND_LOOSE, limit=limit, after=last)
            for loose_id, task, task_key, job_id in loose:
                held = yield from fetch(self.LOCK_LOOSE, task=task, task_key=task_key, job_id=job_id)
                if held:
                    yield from execute(self.FREE_LOOSE, task=task, task_key=task_key, job_id=job_id)
                elif (yield from fetch(self.KEY_IS_THERE, task=task, task_key=task_key, job_id=job_id)):
                    continue  # still locked by somebody
                freed.append(loose_id)
            if len(loose) < limit or len(freed) >= limit:
                break
            last = loose[-1][0]
        if freed:
            yield from execute(self.DROP_LOOSE, ids=self.ids(freed))
        return len(freed)

    # -- what a worker asks about its own claims ---------------------------------------------------

    LOOK: ClassVar[str] = "SELECT id, status, claims, lease_owner FROM dibs_jobs WHERE id {in_ids}"

    def look(self, claims: dict[int, int], *, worker: str, gone: Settled = Settled.ALREADY) -> Op[dict[int, Settled]]:
        """Tell apart why writes about claims (`{id: claims}`) changed nothing.

        Of a row that is gone, as a retention of 0 wants it, it can't be told who settled it: that is answered with `gone`.
        """
        rows = yield from fetch(self.LOOK, alone=True, ids=self.ids(claims))
        found = {row[0]: row[1:] for row in rows}
        answers: dict[int, Settled] = {}
        for job_id, mine in claims.items():
            if job_id not in found:
                answers[job_id] = gone
                continue
            status, current, owner = found[job_id]
            if (current, owner) != (mine, worker):
                answers[job_id] = Settled.LOST
            elif status == State.RUNNING:
                answers[job_id] = Settled.LOCKED
            else:
                answers[job_id] = Settled.ALREADY
        return answers

    def owners(self, ids: Iterable[int]) -> Op[dict[int, Owner]]:
        """Return who has these jobs, or had them last; without those whose rows are gone."""
        rows = yield from fetch(self.LOOK, alone=True, ids=self.ids(ids))
        return {job_id: Owner(State(status), owner) for job_id, status, _, owner in rows}

    MARK_STARTED: ClassVar[str] = """
        UPDATE dibs_jobs SET started_at = {now}, attempts = attempts + 1
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker AND started_at IS NULL
    """
    LOCK_STARTED: ClassVar[str] = """
        SELECT id, claims FROM dibs_jobs
        WHERE id {in_ids} AND status = 'running' AND lease_owner = :worker AND started_at IS NULL
        ORDER BY id {for_update} {skip_locked}
    """

    def mark_started(self, claims: dict[int, int], *, worker: str) -> Op[None]:
        """Count the runs of held jobs (`{id: claims}`) that have moved into a slot."""
        rows = yield from fetch(self.LOCK_STARTED, ids=self.ids(claims), worker=worker)
        mine = [job_id for job_id, current in rows if claims[job_id] == current]
        if mine:
            yield from execute(self.MARK_STARTED, ids=self.ids(mine), worker=worker)

    FIND_CANCELLING: ClassVar[str] = """
        SELECT id FROM dibs_jobs WHERE id {in_ids} AND status = 'running' AND cancel_requested_at IS NOT NULL
    """

    def cancelling(self, ids: Iterable[int]) -> Op[set[int]]:
        """Return which of these running jobs a person wants cancelled."""
        rows = yield from fetch(self.FIND_CANCELLING, alone=True, ids=self.ids(ids))
        return {row[0] for row in rows}

    FIND_CANCELLED: ClassVar[str] = "SELECT id, error FROM dibs_jobs WHERE id {in_ids} AND status = 'cancelled'"

    def cancelled(self, ids: Iterable[int]) -> Op[dict[int, str | None]]:
        """Return which of these jobs are cancelled, whatever the verdicts about them said, each with the reason."""
        rows = yield from fetch(self.FIND_CANCELLED, alone=True, ids=self.ids(ids))
        return dict(rows)

    # -- why a poll came back empty ----------------------------------------------------------------

    # In the order of the lane, like a claim: a planner that thinks that any row will do scans the table for it. Not where
    # the queue is paused: nobody claims what is due there, and all of it would be read for nothing.
    UNKNOWN: ClassVar[str] = """
        SELECT task FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at >= :since AND run_at <= {now}
          AND NOT task {in_tasks}
          AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE queue = :queue AND paused_at IS NOT NULL)
        ORDER BY run_at, id LIMIT 1
    """

    def unknown_task(self, lane: Lane, *, tasks: Value, since: Any | None = None) -> Op[str | None]:
        """Return the name of a task that is due in this lane and not among these, if there is one. None while
        the queue is paused.

        With `since`, a moment that `time` gave, only what became due after it is looked at.
        """
        values = {**lane._asdict(), "tasks": tasks, "since": self.beginning if since is None else since}
        rows = yield from fetch(self.UNKNOWN, alone=True, **values)
        return rows[0][0] if rows else None

    DUE: ClassVar[str] = """
        SELECT run_at, id FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority = :priority AND run_at <= {now} AND task {in_tasks}
          AND NOT EXISTS (SELECT 1 FROM dibs_queues WHERE queue = :queue AND paused_at IS NOT NULL)
        ORDER BY run_at, id LIMIT 1
    """

    def first_due(self, lane: Lane, *, tasks: Value) -> Op[Position | None]:
        """Return where in this lane the first job stands that is due and that these tasks could do. Locks nothing."""
        rows = yield from fetch(self.DUE, alone=True, queue=lane.queue, priority=lane.priority, tasks=tasks)
        return Position(*rows[0]) if rows else None

    PAST: ClassVar[str] = "SELECT queue FROM dibs_jobs WHERE status = 'running' AND lease_until < {now} LIMIT 100"

    def past(self, queues: Sequence[str] | None) -> Op[bool]:
        """Is a lease past in one of these queues (None: in any)? Its job will be due again."""
        rows = yield from fetch(self.PAST, alone=True)
        return any(queues is None or row[0] in queues for row in rows)


#: Attempts whose errors are kept with a job.
KEPT_ERRORS = 5


def with_error(errors: str | None, *, attempt: int, error: str, at: str | None = None, **more: int) -> str:
    """Return the JSON list of a job's last errors with one more."""
    kept = errors_of(errors)
    entry = {"attempt": attempt, "error": error} | ({"at": at} if at else {}) | more
    return msgspec.json.encode([*kept, entry][-KEPT_ERRORS:]).decode()
