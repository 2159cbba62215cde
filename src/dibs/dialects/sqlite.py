"""SQLite (3.35 and later), in our own process: a statement costs microseconds, and a commit costs its fsync.

Read before changing a statement:
- There is one writer at a time. It waits for no row, so nothing here is ever locked or skipped.
- A transaction that read first and writes later is refused at once (SQLITE_BUSY_SNAPSHOT, without waiting) if
  anybody wrote in between. So the first thing that an op does in a user's transaction is to write.
- Python's sqlite3 in its legacy mode opens a transaction before INSERT, UPDATE and DELETE, not before WITH or
  SELECT. What writes on a user's connection begins with one of the three.
- Times are text in UTC, of one width, so they compare as text. 'now' stands still within a statement, is read
  when the write lock is had, and may bound an index range.
- json_each and json_extract write JSON anew, and make a float of 2⁶⁴. So JSON in a list travels as a string.
- Statuses are literals. As parameters they would keep the planner from the partial indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from dibs.dialects.claims import CLAIM_COLUMNS
from dibs.dialects.dialect import Dialect
from dibs.dialects.enqueuing import Key, KeyedEnqueue, alike
from dibs.dialects.spelling import utc
from dibs.dialects.sqlite_locks import SQLiteLocks
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError
from dibs.jobs import Claim, Lane, NewJob, Renewal, Settled, Verdict, Wanted
from dibs.ops import Fetch, Op, Value, execute, fetch, long
from dibs.states import State

# As what a subquery answers it is worked out once for a statement, and not for each row (1 µs a time).
_NOW = "(SELECT strftime('%Y-%m-%d %H:%M:%f', 'now'))"
_BEGINNING = ""  # sorts before any time
_END = "9999-12-31 23:59:59.999"

_LOWEST = -(2**63)  # no priority is lower


def _after(seconds: str) -> str:
    """Return SQL for the moment so many seconds from now; the end of time where SQLite can't count so far."""
    return f"coalesce(strftime('%Y-%m-%d %H:%M:%f', 'now', printf('%+.3f seconds', {seconds})), '{_END}')"


_COLUMNS = "queue, task, payload, priority, max_attempts, task_key, key_until, retention, meta"
_NAMES = [*_COLUMNS.split(", "), "run_at", "delay"]


def _new_job(spelt: dict[str, str]) -> str:
    """Return the columns of a new job, for a SELECT or VALUES."""
    columns = ", ".join(spelt[name] for name in _COLUMNS.split(", "))
    return f"{columns}, max({_NOW}, coalesce({spelt['run_at']}, {_after(spelt['delay'])})), {_NOW}"


_FROM_VALUES = _new_job({name: f":{name}" for name in _NAMES})
_FROM_LIST = _new_job({name: f"json_extract(value, '$[{place}]')" for place, name in enumerate(_NAMES)})

# A lane, and none if its queue is paused. As a condition of its own, the pause would be looked for with each row.
_LANE = """
    status = 'ready' AND priority = :priority AND queue = (
        SELECT :queue WHERE NOT EXISTS (SELECT 1 FROM dibs_queues WHERE queue = :queue AND paused_at IS NOT NULL))
"""

# Of (run_at, id) >= (…) SQLite makes a range of run_at and a filter of id. That is enough: a claimed job is
# gone from the index at once, so only rows that were passed over are read again. (A UNION ALL of
# `run_at = … AND id >= …` and `run_at > …` is a range throughout, and makes each claim 60 µs dearer.)
_DUE = f"""
    {_LANE} AND (run_at, id) >= (:run_at, :id) AND run_at <= {{now}} AND task {{in_tasks}}
"""


class SQLite(KeyedEnqueue, SQLiteLocks, Dialect):
    family = "sqlite"
    name = "SQLite"
    idle_poll = timedelta(seconds=0.2)
    one_writer = True
    migrations = "sqlite"
    migrates_itself = True
    beginning = _BEGINNING

    spelling: ClassVar[dict[str, str]] = {
        "now": _NOW,
        "soon": _after(":delay"),
        "after_keeping": _after("coalesce(retention, 604800)"),
        "in_ids": "IN (SELECT value FROM json_each(:ids))",
        "in_tasks": "IN (SELECT value FROM json_each(:tasks))",
        "for_update": "",
        "skip_locked": "",
        "nowait": "",
        "insert_new": "INSERT",
        "or_nothing": "ON CONFLICT DO NOTHING",
        "as_text": "",
        "sooner": "strftime('%Y-%m-%d %H:%M:%f', run_at, printf('%+.3f seconds', -:seconds))",
        "error_has": "instr(error, :error) > 0",
        "since": ":since",
    }

    def __init__(self, schema: str = "main", prefix: str = "") -> None:
        if schema != "main":
            raise ConfigurationError("a file has no schemas: use prefix=, or another file")
        super().__init__(schema, prefix)

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def qualify(self, text: str) -> str:
        # An index is in its table's schema, and CREATE INDEX takes the table's name without it.
        return re.sub(r'(\bINDEX .* ON )"\w+"\.', r"\1", super().qualify(text))

    def ids(self, ids: Iterable[int]) -> Value:
        return msgspec.json.encode(list(ids)).decode()

    def names(self, names: Iterable[str]) -> Value:
        return msgspec.json.encode(list(names)).decode()

    def moment(self, value: Any) -> datetime:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)

    def written(self, moment: datetime) -> Value:
        return stored(moment)

    # -- enqueue ---------------------------------------------------------------------------------

    INSERT_ONE: ClassVar[str] = f"""
        INSERT INTO dibs_jobs ({_COLUMNS}, run_at, created_at) VALUES ({_FROM_VALUES}) RETURNING id
    """
    # 3 µs a job; with objects in the list 5, with a statement for each job 9. Ordered so that ids rise with
    # the list: nobody promises that json_each walks it in order.
    INSERT_MANY: ClassVar[str] = f"""
        INSERT INTO dibs_jobs ({_COLUMNS}, run_at, created_at)
        SELECT {_FROM_LIST} FROM json_each(:jobs) ORDER BY key RETURNING id
    """

    INSERT_ALIKE: ClassVar[str] = """
        INSERT INTO dibs_jobs (queue, task, payload, priority, max_attempts, retention, run_at, created_at)
        SELECT :queue, :task, value, :priority, :max_attempts, :retention, now, now
        FROM json_each(:payloads), (SELECT {now} AS now) ORDER BY key RETURNING id
    """

    def insert_jobs(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[list[int]]:
        first = jobs[0]
        if len(jobs) == 1:
            ((job_id,),) = yield from fetch(self.INSERT_ONE, alone=True, **_values(first))
            return [job_id]
        if alike(jobs):
            op = fetch(
                self.INSERT_ALIKE,
                alone=True,
                payloads=msgspec.json.encode([bytes(job.payload).decode() for job in jobs]).decode(),
                queue=first.queue,
                task=first.task,
                priority=first.priority,
                max_attempts=first.max_attempts,
                retention=first.retention,
            )
        else:
            op = fetch(self.INSERT_MANY, alone=True, jobs=_list(jobs))
        rows = yield from long(op)
        return sorted(row[0] for row in rows)

    # The statement that writes a job asks whether its key is free. It has the write lock by then, so what it
    # saw is still so when the key is taken.
    INSERT_KEYED: ClassVar[str] = f"""
        INSERT INTO dibs_jobs ({_COLUMNS}, run_at, created_at)
        SELECT {_FROM_LIST} FROM json_each(:jobs)
        WHERE NOT EXISTS (
            SELECT 1 FROM dibs_keys
            WHERE task = json_extract(value, '$[{_NAMES.index("task")}]')
              AND task_key = json_extract(value, '$[{_NAMES.index("task_key")}]')
        )
        ORDER BY key
        RETURNING task, task_key, id
    """
    TAKE_KEYS: ClassVar[str] = """
        INSERT INTO dibs_keys (task, task_key, job_id)
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
        FROM json_each(:taken)
    """

    def insert_keyed(self, jobs: Sequence[NewJob], *, tell: bool) -> Op[dict[Key, int]]:
        rows = yield from long(fetch(self.INSERT_KEYED, jobs=_list(jobs)))
        if rows:
            yield from execute(self.TAKE_KEYS, taken=msgspec.json.encode(rows).decode())
        return {(task, key): job_id for task, key, job_id in rows}

    FIND_HOLDERS: ClassVar[str] = """
        SELECT k.task, k.task_key, k.job_id, j.payload
        FROM json_each(:keys) AS asked
        CROSS JOIN dibs_keys AS k ON k.task = json_extract(asked.value, '$.task')
                                 AND k.task_key = json_extract(asked.value, '$.task_key')
        LEFT JOIN dibs_jobs AS j ON j.id = k.job_id
    """

    def find_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        """Ask for none yet: the first statement has to be a write, and a duplicate is written down anyway."""
        yield from ()
        return {}

    def find_new_holders(self, keys: Sequence[Key]) -> Op[dict[Key, tuple[int, str | None]]]:
        return (yield from super().find_holders(keys))

    RECORD_DUPLICATES: ClassVar[str] = """
        INSERT INTO dibs_duplicates (job_id, times, created_at)
        SELECT CAST(key AS INTEGER), value, {now} FROM json_each(:duplicates)
    """

    # -- claim -----------------------------------------------------------------------------------

    # From lane to lane through the index; DISTINCT would read every ready row. So would > in place of >=,
    # though its plan looks the same: SQLite seeks the first row of the lane and filters.
    NEXT_LANE: ClassVar[str] = """
        SELECT queue, priority FROM dibs_jobs
        WHERE status = 'ready' AND (queue, priority) >= (:queue, :priority)
        ORDER BY queue, priority LIMIT 1
    """
    NEXT_LANE_OF: ClassVar[str] = """
        SELECT queue, priority FROM dibs_jobs
        WHERE status = 'ready' AND queue = :queue AND priority >= :priority
        ORDER BY priority LIMIT 1
    """

    def lanes(self, queues: Sequence[str] | None, *, known: Sequence[Lane] = ()) -> Op[list[Lane]]:
        step = self.NEXT_LANE if queues is None else self.NEXT_LANE_OF
        lanes: list[Lane] = []
        for queue in ("",) if queues is None else queues:
            place = Lane(queue, _LOWEST)
            while rows := (yield from fetch(step, alone=True, **place._asdict())):
                lanes.append(Lane(*rows[0]))
                place = Lane(lanes[-1].queue, lanes[-1].priority + 1)
        return lanes

    # A look first, since it takes no lock: a worker that polls in vain waits for no writer, and none for it.
    PEEK: ClassVar[str] = f"SELECT 1 FROM dibs_jobs WHERE {_DUE} LIMIT 1"

    # Rows are numbered as they come, in order. UPDATE … FROM works all of it out before it changes anything.
    CLAIM: ClassVar[str] = f"""
        WITH picked AS MATERIALIZED (
            SELECT id, crashes, row_number() OVER () <= :start AS starts
            FROM (SELECT id, crashes FROM dibs_jobs WHERE {_DUE} ORDER BY run_at, id LIMIT :limit)
        )
        UPDATE dibs_jobs AS j SET
            status = 'running', claims = j.claims + 1, lease_owner = :worker,
            lease = :lease, lease_until = (SELECT {_after(":lease")}),
            attempts = j.attempts + picked.starts, started_at = CASE WHEN picked.starts THEN {{now}} END
        FROM picked WHERE j.id = picked.id AND (picked.starts OR picked.crashes = 0)
        RETURNING {CLAIM_COLUMNS}
    """

    def claim(self, wanted: Wanted, *, turn: float | None = None) -> Op[list[Claim]]:
        del turn  # there is one writer at a time anyway
        run_at, job_id = wanted.since or (_BEGINNING, 0)
        due: dict[str, Value] = {**wanted.lane._asdict(), "run_at": run_at, "id": job_id, "tasks": wanted.tasks}
        if not (yield from fetch(self.PEEK, alone=True, **due)):
            return []
        how: dict[str, Value] = {
            "worker": wanted.worker,
            "lease": wanted.lease,
            "start": wanted.start,
            "limit": wanted.limit,
        }
        rows = yield Fetch(self.CLAIM, {**due, **how}, alone=True)
        return self.claims_from(rows)

    UNKNOWN: ClassVar[str] = f"""
        SELECT task FROM dibs_jobs WHERE {_LANE} AND run_at >= :since AND run_at <= {{now}} AND NOT task {{in_tasks}}
        ORDER BY run_at, id LIMIT 1
    """
    DUE: ClassVar[str] = f"""
        SELECT run_at, id FROM dibs_jobs
        WHERE {_LANE} AND run_at <= {{now}} AND task {{in_tasks}} ORDER BY run_at, id LIMIT 1
    """

    # -- renew and settle ------------------------------------------------------------------------

    # Not FROM json_each(…): that leaves it to the planner which of the two is read for each row of the other.
    RENEW: ClassVar[str] = f"""
        UPDATE dibs_jobs SET lease = :lease, lease_until = {_after(":lease")}
        WHERE (id, claims) IN (SELECT CAST(key AS INTEGER), value FROM json_each(:held))
          AND status = 'running' AND lease_owner = :worker
        RETURNING id, cancel_requested_at IS NOT NULL
    """

    def renew(self, held: Sequence[tuple[int, int]], *, worker: str, lease: float) -> Op[Renewal]:
        claims = msgspec.json.encode({str(job_id): claims for job_id, claims in held}).decode()
        rows = yield from fetch(self.RENEW, alone=True, held=claims, worker=worker, lease=lease)
        renewed = {row[0] for row in rows}
        lost: set[int] = set()
        if missing := {job_id: claims for job_id, claims in held if job_id not in renewed}:
            looked = yield from self.look(missing, worker=worker, gone=Settled.LOST)
            lost = {job_id for job_id, settled in looked.items() if settled is Settled.LOST}
        return Renewal(renewed, lost, {job_id for job_id, cancelling in rows if cancelling})

    # What simply is done, as nearly all are: 5 µs a job in batches of 500, where a statement for each takes 16. Moments
    # that are the same for all are worked out once, as what a subquery answers is; a run too short for the clock began
    # when it ended. `+` keeps the planner from the index of what is running, which it would read for each row of the list.
    SETTLE_DONE: ClassVar[str] = f"""
        UPDATE dibs_jobs SET
            status = 'done', attempts = v.attempts, lease_until = NULL,
            started_at = coalesce(started_at, CASE WHEN v.ran >= 0.0005 THEN {_after("-v.ran")} ELSE {{now}} END),
            finished_at = {{now}}, expires_at = (SELECT {_after(":keep")}), result = v.result
        FROM (
            SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS claims,
                json_extract(value, '$[2]') AS attempts, json_extract(value, '$[3]') AS ran,
                json_extract(value, '$[4]') AS result
            FROM json_each(:done)
        ) AS v
        WHERE dibs_jobs.id = v.id AND +status = 'running' AND dibs_jobs.claims = v.claims AND lease_owner = :worker
          AND cancel_requested_at IS NULL
        RETURNING id, task_key IS NOT NULL AND key_until = 'finished'
    """

    # The others by a statement for each verdict, since none has to travel: one statement for a list of all that a verdict
    # can say took 11 to 19 µs a job and 16 to 85 alone, and 30 with results of 2 kB.
    SETTLE: ClassVar[str] = f"""
        UPDATE dibs_jobs SET
            status = CASE WHEN cancel_requested_at IS NULL THEN :status ELSE 'cancelled' END,
            attempts = :attempts, releases = :releases, lease_until = NULL,
            started_at = CASE WHEN :ran IS NULL THEN started_at
                         ELSE coalesce(started_at, {_after("-:ran")}) END,
            run_at = CASE WHEN :status = 'ready' THEN {{soon}} ELSE run_at END,
            finished_at = CASE WHEN :status <> 'ready' OR cancel_requested_at IS NOT NULL THEN {{now}} END,
            expires_at = CASE WHEN cancel_requested_at IS NOT NULL THEN {{after_keeping}}
                         WHEN :status <> 'ready' THEN {_after(":keep")} END,
            result = :result, error = coalesce(cancel_reason, :error, error), errors = coalesce(:errors, errors)
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
        RETURNING task_key IS NOT NULL AND (
            status IN ('failed', 'cancelled') OR (status = 'done' AND key_until = 'finished'))
    """
    SETTLE_UNKEPT: ClassVar[str] = """
        DELETE FROM dibs_jobs
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
        RETURNING task_key IS NOT NULL
    """
    FORGET_DUPLICATES: ClassVar[str] = "DELETE FROM dibs_duplicates WHERE job_id = :id"

    def settle(self, verdicts: Sequence[Verdict], *, worker: str, haste: float | None = None) -> Op[dict[int, Settled]]:
        del haste  # there are no rows to wait for
        answers: dict[int, Settled] = {}
        frees: list[int] = []
        done: dict[float, list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.plain:
                done.setdefault(verdict.keep, []).append(verdict)
        for kept, group in done.items():
            rows = yield from fetch(self.SETTLE_DONE, done=_done(group), keep=kept, worker=worker)
            answers |= dict.fromkeys((row[0] for row in rows), Settled.NOW)
            frees += [row[0] for row in rows if row[1]]
        for verdict in verdicts:
            if verdict.id in answers:
                continue
            unkept = verdict.status is not State.READY and verdict.keep <= 0
            values = msgspec.structs.asdict(verdict) | {
                "status": str(verdict.status),
                "result": _text(verdict.result),
                "errors": _text(verdict.errors),
                "worker": worker,
            }
            rows = yield from fetch(self.SETTLE_UNKEPT if unkept else self.SETTLE, alone=False, **values)
            for (frees_key,) in rows:
                answers[verdict.id] = Settled.NOW
                if frees_key:
                    frees.append(verdict.id)
                    if unkept:
                        yield from execute(self.FORGET_DUPLICATES, id=verdict.id)
        if frees:
            yield from execute(self.FREE_KEYS, ids=self.ids(frees))
        if missing := {verdict.id: verdict.claims for verdict in verdicts if verdict.id not in answers}:
            answers |= yield from self.look(missing, worker=worker)
        return answers

    FINISH: ClassVar[str] = f"""
        UPDATE dibs_jobs SET status = 'done', lease_until = NULL, finished_at = {{now}},
            started_at = coalesce(started_at, {{now}}), attempts = :attempts,
            expires_at = {_after(":keep")}, result = :result
        WHERE id = :id AND status = 'running' AND claims = :claims AND lease_owner = :worker
          AND cancel_requested_at IS NULL
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
        changed = yield from execute(
            self.FINISH, id=job_id, claims=claims, worker=worker, attempts=attempts, result=result, keep=keep
        )
        if changed and frees_key:
            yield from self.free_keys([job_id])
        return changed > 0

    # -- the library and the schema --------------------------------------------------------------

    @classmethod
    def default_schema(cls, url: DatabaseUrl) -> str:
        return "main"

    HAS_TABLES: ClassVar[str] = "SELECT count(*) FROM pragma_table_info(:meta, :schema)"
    PLACES: ClassVar[str] = "SELECT :schema, name FROM sqlite_master WHERE type = 'table' AND substr(name, -9) = :jobs"


def stored(moment: datetime) -> str:
    """Return a time as the tables have it, rounded up to the millisecond so that nothing is due early.

    >>> stored(datetime(2030, 1, 2, 3, 4, 5, 600_001, tzinfo=UTC))
    '2030-01-02 03:04:05.601'
    """
    try:
        moment = utc(moment)
        moment += timedelta(microseconds=-moment.microsecond % 1000)
    except OverflowError:  # within a day of the first or the last moment that Python knows
        return _END if moment.year > 1 else _BEGINNING
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")


def _done(verdicts: Iterable[Verdict]) -> str:
    rows = [(each.id, each.claims, each.attempts, each.ran, _text(each.result)) for each in verdicts]
    return msgspec.json.encode(rows).decode()


def _text(json: msgspec.Raw | None) -> str | None:
    return None if json is None else bytes(json).decode()


def _values(job: NewJob) -> dict[str, Value]:
    return msgspec.structs.asdict(job) | {
        "payload": _text(job.payload),
        "meta": _text(job.meta),
        "run_at": None if job.run_at is None else stored(job.run_at),
    }


def _list(jobs: Sequence[NewJob]) -> str:
    """Return jobs as a JSON list of lists, in the order of `_NAMES`."""
    values = [_values(job) for job in jobs]
    return msgspec.json.encode([[value[name] for name in _NAMES] for value in values]).decode()
