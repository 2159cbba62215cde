"""PostgreSQL (12 and later). One statement per hot op, so a claim or a settle is one round trip and no open transaction.

Read before changing a statement:
- Statuses are literals. As parameters, a generic plan can't use the partial indexes (measured: Seq Scan + Sort).
- What is picked is picked in a MATERIALIZED CTE; otherwise the planner may run the LIMIT more than once and claim
  too much (BUG #15715, "works as designed").
- Rows are updated by `id = ANY(ARRAY(SELECT …))`. Joined with FROM alone, the planner hashes and scans the table.
- FOR NO KEY UPDATE, not FOR UPDATE: a user's foreign key to a job (KEY SHARE) must not hide it from claims.
- `now()` bounds the claim; `clock_timestamp()` there would be a filter, since it is volatile (300,000 rows read).
- Every parameter is cast: drivers that prepare by type, and those that send text, then mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

import msgspec

from dibs.dialects.claims import CLAIM_COLUMNS
from dibs.dialects.dialect import Dialect
from dibs.dialects.postgres_enqueuing import PostgresEnqueue
from dibs.dialects.postgres_lanes import PostgresLanes
from dibs.dialects.postgres_locks import PostgresLocks
from dibs.dialects.postgres_reasons import PostgresReasons
from dibs.dialects.spelling import JOB_IDS, SCHEMA, utc
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ReadOnlyDatabase, UnsuitableDatabase
from dibs.jobs import Claim, Renewal, Settled, Verdict, Wanted
from dibs.ops import Fetch, Op, Row, Value, execute, fetch


class Postgres(PostgresEnqueue, PostgresLanes, PostgresReasons, PostgresLocks, Dialect):
    family = "postgresql"
    name = "PostgreSQL"
    idle_poll = timedelta(seconds=2)
    migrations = "postgres"
    chunk = 5_000
    keys_take_a_transaction = False
    beginning = "-infinity"

    spelling: ClassVar[dict[str, str]] = {
        "now": "statement_timestamp()",
        "soon": "statement_timestamp() + CAST(:delay AS float8) * interval '1 second'",
        "after_keeping": "statement_timestamp() + coalesce(retention, 604800) * interval '1 second'",
        "in_ids": "= ANY(CAST(:ids AS bigint[]))",
        "in_tasks": "= ANY(CAST(:tasks AS text[]))",
        "for_update": "FOR NO KEY UPDATE",
        "skip_locked": "SKIP LOCKED",
        "nowait": "NOWAIT",
        "insert_new": "INSERT",
        "or_nothing": "ON CONFLICT DO NOTHING",
        "as_text": "::text",
        "sooner": "run_at - CAST(:seconds AS float8) * interval '1 second'",
        "error_has": "position(CAST(:error AS text) IN error) > 0",
        "since": "CAST(:since AS timestamptz)",
    }

    def __init__(self, schema: str, prefix: str = "") -> None:
        super().__init__(schema, prefix)
        self.channel = f"{prefix}dibs_{schema}"[:63]  # an identifier's length

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def ids(self, ids: Iterable[int]) -> Value:
        return list(ids)

    def names(self, names: Iterable[str]) -> Value:
        return list(names)

    def moment(self, value: Any) -> datetime:
        return utc(value)

    def written(self, moment: datetime) -> Value:
        return utc(moment)

    # -- wake-ups -------------------------------------------------------------------------------

    TELL: ClassVar[str] = """
        SELECT pg_notify(CAST(:channel AS text), json_build_array(queue, now())::text)
        FROM unnest(CAST(:queues AS text[])) AS q(queue)
    """

    def tell(self, queues: Sequence[str]) -> Op[None]:
        if queues:
            yield from fetch(self.TELL, channel=self.channel, queues=list(queues))

    # -- claim -----------------------------------------------------------------------------------

    # The range (run_at, id) >= (…) AND run_at <= now() is read from the index in its own order. Rows beyond the
    # first :start are held, not started; what once crashed is not held (it comes up again for a free slot).
    _PICKED: ClassVar[str] = """
        picked AS MATERIALIZED (
            SELECT id, run_at, crashes FROM dibs_jobs
            WHERE status = 'ready' AND queue = CAST(:queue AS text) AND priority = CAST(:priority AS smallint)
              AND (run_at, id) >= (CAST(:run_at AS timestamptz), CAST(:id AS bigint)) AND run_at <= now()
              AND task {in_tasks}
              AND NOT EXISTS (SELECT FROM dibs_queues WHERE queue = CAST(:queue AS text) AND paused_at IS NOT NULL)
            ORDER BY run_at, id
            LIMIT CAST(:limit AS integer)
            FOR NO KEY UPDATE SKIP LOCKED
        ), ranked AS MATERIALIZED (
            SELECT id, crashes, row_number() OVER (ORDER BY run_at, id) <= CAST(:start AS integer) AS starts FROM picked
        )
    """
    _TAKE: ClassVar[str] = f"""
        UPDATE dibs_jobs SET
            status = 'running', claims = claims + 1, lease_owner = CAST(:worker AS text),
            lease = CAST(:lease AS float8),
            lease_until = clock_timestamp() + CAST(:lease AS float8) * interval '1 second',
            attempts = attempts + CASE WHEN id = ANY(ARRAY(SELECT id FROM ranked WHERE starts)) THEN 1 ELSE 0 END,
            started_at = CASE WHEN id = ANY(ARRAY(SELECT id FROM ranked WHERE starts)) THEN clock_timestamp() END
        WHERE id = ANY(ARRAY(SELECT id FROM ranked WHERE starts OR crashes = 0))
        RETURNING {CLAIM_COLUMNS}
    """
    CLAIM: ClassVar[str] = f"WITH {_PICKED} {_TAKE}"

    # Who claims many at the same time tries the others' rows: one that was taken since a statement's snapshot is locked
    # until that ends, though it is not what is wanted, and can't be settled meanwhile. (20 processes: 13,000 jobs/s, in
    # turns 30,000.)
    TAKE_TURN: ClassVar[str] = """
        SELECT set_config('lock_timeout', CAST(:haste AS text), true),
            pg_advisory_xact_lock(hashtextextended('dibs claim ' || CAST(:lane AS text), 0))
    """

    def claim(self, wanted: Wanted, *, turn: float | None = None) -> Op[list[Claim]]:
        if turn is not None:
            name = f"{self.schema} {self.prefix} {wanted.lane.queue} {wanted.lane.priority}"
            yield from fetch(self.TAKE_TURN, lane=name, haste=_ms(turn))
        rows = yield Fetch(self.CLAIM, self._wanted(wanted), alone=turn is None, compact=True)
        return self.claims_from(rows)

    def _wanted(self, wanted: Wanted) -> dict[str, Value]:
        run_at, job_id = wanted.since or (self.beginning, 0)
        return {**wanted._asdict(), **wanted.lane._asdict(), "run_at": run_at, "id": job_id}

    # -- renew and settle ------------------------------------------------------------------------

    # The claims are gone through one by one (LATERAL with a lock can't be flattened into a join), whatever the
    # statistics say. With `id = ANY(…)` on the table's side and a join for the values, a planner that thinks that
    # nothing is running joins each row with the whole list (measured: 254 ms instead of 4 for a batch of 500).
    RENEW: ClassVar[str] = """
        WITH free AS MATERIALIZED (
            SELECT h.id FROM unnest(CAST(:ids AS bigint[]), CAST(:claims AS bigint[])) AS h(id, claims)
            CROSS JOIN LATERAL (
                SELECT FROM dibs_jobs j
                WHERE j.id = h.id AND j.status = 'running' AND j.claims = h.claims AND j.lease_owner = CAST(:worker AS text)
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS ours
        )
        UPDATE dibs_jobs SET
            lease = CAST(:lease AS float8),
            lease_until = clock_timestamp() + CAST(:lease AS float8) * interval '1 second'
        WHERE id = ANY(ARRAY(SELECT id FROM free)) AND status = 'running' AND lease_owner = CAST(:worker AS text)
        RETURNING id, cancel_requested_at IS NOT NULL
    """

    def renew(self, held: Sequence[tuple[int, int]], *, worker: str, lease: float) -> Op[Renewal]:
        rows = yield from fetch(
            self.RENEW,
            alone=True,
            ids=[job_id for job_id, _ in held],
            claims=[claims for _, claims in held],
            worker=worker,
            lease=lease,
        )
        renewed = {row[0] for row in rows}
        lost: set[int] = set()
        if missing := {job_id: claims for job_id, claims in held if job_id not in renewed}:
            looked = yield from self.look(missing, worker=worker, gone=Settled.LOST)
            lost = {job_id for job_id, settled in looked.items() if settled is Settled.LOST}
        return Renewal(renewed, lost, {job_id for job_id, cancelling in rows if cancelling})

    # Verdicts travel as one JSON list; results in it are JSON themselves and keep their text (json, not jsonb).
    # `free` holds the fence: what it locked is ours for the rest of the statement, so the writes go by id alone,
    # which keeps the planner from starting at the rows that it believes to be few (see RENEW).
    # A retention of 0 deletes at once, unless the job goes round again.
    SETTLE: ClassVar[str] = """
        WITH verdict AS MATERIALIZED (
            SELECT * FROM json_to_recordset(CAST(CAST(:verdicts AS text) AS json)) AS v(
                id bigint, claims bigint, status text, attempts integer, releases integer,
                delay float8, ran float8, keep float8, result json, error text, errors json)
        ), free AS MATERIALIZED (
            SELECT v.* FROM verdict v CROSS JOIN LATERAL (
                SELECT FROM dibs_jobs j
                WHERE j.id = v.id AND j.status = 'running' AND j.claims = v.claims AND j.lease_owner = CAST(:worker AS text)
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS ours
        ), gone AS (
            DELETE FROM dibs_jobs j USING free v
            WHERE j.id = v.id AND v.status <> 'ready' AND v.keep <= 0
            RETURNING j.id, j.task, j.task_key, true AS frees
        ), settled AS (
            UPDATE dibs_jobs j SET
                status = CASE WHEN j.cancel_requested_at IS NULL THEN v.status ELSE 'cancelled' END,
                attempts = v.attempts, releases = v.releases, lease_until = NULL,
                started_at = CASE WHEN v.ran IS NULL THEN j.started_at
                             ELSE coalesce(j.started_at, clock_timestamp() - v.ran * interval '1 second') END,
                run_at = CASE WHEN v.status = 'ready' THEN clock_timestamp() + v.delay * interval '1 second'
                         ELSE j.run_at END,
                finished_at = CASE WHEN v.status <> 'ready' OR j.cancel_requested_at IS NOT NULL
                              THEN clock_timestamp() END,
                expires_at = CASE WHEN v.status <> 'ready' OR j.cancel_requested_at IS NOT NULL
                             THEN clock_timestamp() + interval '1 second' * CASE
                                 WHEN j.cancel_requested_at IS NULL THEN v.keep
                                 ELSE coalesce(j.retention, 604800) END END,
                result = v.result, error = coalesce(j.cancel_reason, v.error, j.error),
                errors = coalesce(v.errors, j.errors)
            FROM free v
            WHERE j.id = v.id AND (v.status = 'ready' OR v.keep > 0)
            RETURNING j.id, j.task, j.task_key,
                j.status IN ('failed', 'cancelled') OR (j.status = 'done' AND j.key_until = 'finished') AS frees
        ), ended AS (
            SELECT * FROM settled UNION ALL SELECT * FROM gone
        ), let_go AS (
            DELETE FROM dibs_keys k USING ended e
            WHERE e.frees AND e.task_key IS NOT NULL
              AND k.task = e.task AND k.task_key = e.task_key AND k.job_id = e.id
        ), forgotten AS (
            DELETE FROM dibs_duplicates WHERE job_id = ANY(ARRAY(SELECT id FROM gone WHERE task_key IS NOT NULL))
        )
        SELECT id FROM ended
    """

    # What simply is done, as nearly all are, without the lock before the write: a held row is waited for, briefly, and
    # then nothing has changed. 8 µs a job in batches of 500, where SETTLE takes 14. The limit is the statement's own, so
    # it is left on no session. The fence compares with the list, so that no statistics make it seem to match few rows.
    _SETTLED: ClassVar[str] = """
        settled AS (
            UPDATE dibs_jobs j SET
                status = 'done', attempts = v.attempts, lease_until = NULL,
                started_at = coalesce(j.started_at, clock_timestamp() - v.ran * interval '1 second'),
                finished_at = clock_timestamp(), expires_at = clock_timestamp() + v.keep * interval '1 second',
                result = CAST(v.result AS json)
            FROM (
                SELECT *, 'running' AS status, CAST(:worker AS text) AS owner, true AS wanted FROM unnest(
                    CAST(CAST(:ids AS text) AS bigint[]), CAST(CAST(:claims AS text) AS bigint[]),
                    CAST(CAST(:attempts AS text) AS integer[]), CAST(CAST(:ran AS text) AS float8[]),
                    CAST(CAST(:keep AS text) AS float8[]), CAST(:results AS text[])
                ) AS u(id, claims, attempts, ran, keep, result)
                OFFSET 0
            ) AS v
            WHERE j.id = v.id AND j.status = v.status AND j.claims = v.claims AND j.lease_owner = v.owner
              AND (j.cancel_requested_at IS NULL) = v.wanted
              AND (SELECT set_config('lock_timeout', CAST(:haste AS text), true)) IS NOT NULL
            RETURNING j.id, j.task, j.task_key, j.key_until
        ), let_go AS (
            DELETE FROM dibs_keys k USING settled e
            WHERE e.task_key IS NOT NULL AND e.key_until = 'finished'
              AND k.task = e.task AND k.task_key = e.task_key AND k.job_id = e.id
        )
    """
    SETTLE_DONE: ClassVar[str] = f"WITH {_SETTLED} SELECT id FROM settled"
    SETTLE_AND_CLAIM: ClassVar[str] = f"""
        WITH {_SETTLED}, {_PICKED}, taken AS ({_TAKE})
        SELECT ARRAY(SELECT id FROM settled), taken.* FROM (VALUES (true)) AS one_row_at_least LEFT JOIN taken ON true
    """

    def settle(self, verdicts: Sequence[Verdict], *, worker: str, haste: float | None = None) -> Op[dict[int, Settled]]:
        answers: dict[int, Settled] = {}
        done = [verdict for verdict in verdicts if verdict.plain] if haste is not None else []
        if done:
            rows = yield Fetch(self.SETTLE_DONE, {**_done(done, haste or 0.0), "worker": worker}, alone=True)
            answers = dict.fromkeys((row[0] for row in rows), Settled.NOW)
        if others := [verdict for verdict in verdicts if verdict.id not in answers]:
            answers |= yield from self._settle(others, worker=worker)
        return answers

    def _settle(self, verdicts: Sequence[Verdict], *, worker: str) -> Op[dict[int, Settled]]:
        rows = yield from fetch(self.SETTLE, alone=True, verdicts=msgspec.json.encode(verdicts).decode(), worker=worker)
        answers = dict.fromkeys((row[0] for row in rows), Settled.NOW)
        if missing := {verdict.id: verdict.claims for verdict in verdicts if verdict.id not in answers}:
            answers |= yield from self.look(missing, worker=worker)
        return answers

    def settle_and_claim(
        self, verdicts: Sequence[Verdict], wanted: Wanted, *, haste: float
    ) -> Op[tuple[dict[int, Settled], list[Claim]]]:
        values = {**_done(verdicts, haste), **self._wanted(wanted)}
        rows: list[Row] = yield Fetch(self.SETTLE_AND_CLAIM, values, alone=True, compact=True)
        claims = self.claims_from(row[1:] for row in rows if row[1] is not None)
        return dict.fromkeys(rows[0][0], Settled.NOW), claims

    FINISH: ClassVar[str] = """
        WITH finished AS (
            UPDATE dibs_jobs SET status = 'done', lease_until = NULL, finished_at = clock_timestamp(),
                started_at = coalesce(started_at, clock_timestamp()), attempts = CAST(:attempts AS integer),
                expires_at = clock_timestamp() + CAST(:keep AS float8) * interval '1 second',
                result = CAST(CAST(:result AS text) AS json)
            WHERE id = CAST(:id AS bigint) AND status = 'running' AND claims = CAST(:claims AS bigint)
              AND lease_owner = CAST(:worker AS text) AND cancel_requested_at IS NULL
            RETURNING id
        ), let_go AS (
            DELETE FROM dibs_keys WHERE job_id IN (SELECT id FROM finished) AND CAST(:frees AS boolean)
        )
        SELECT id FROM finished
    """

    def finish(
        self, job_id: int, *, claims: int, worker: str, attempts: int, result: str | None, keep: float, frees_key: bool
    ) -> Op[bool]:
        rows = yield from fetch(
            self.FINISH,
            id=job_id,
            claims=claims,
            worker=worker,
            attempts=attempts,
            result=result,
            keep=keep,
            frees=frees_key,
        )
        return bool(rows)

    # -- the server and the schema -----------------------------------------------------------------

    @classmethod
    def default_schema(cls, url: DatabaseUrl) -> str:
        return "public"

    SUITABLE: ClassVar[str] = """
        SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
            CAST(current_setting('server_version_num') AS integer), current_setting('server_version')
    """

    def suitable(self) -> Op[None]:
        ((in_recovery, read_only, number, version),) = yield from fetch(self.SUITABLE, alone=True)
        if in_recovery:
            raise ReadOnlyDatabase("this server is a replica (in recovery): point dibs at the primary")
        if read_only:
            raise ReadOnlyDatabase(
                "this server is set read-only (default_transaction_read_only = on): point dibs at one that takes writes"
            )
        if number < 120000:
            raise UnsuitableDatabase(f"dibs needs PostgreSQL 12 or later, this is {version}")

    # In the catalogue, which anyone may read: the standard's views leave out what one has no privilege on.
    HAS_TABLES: ClassVar[str] = """
        SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = CAST(:meta AS text)
    """

    MAY_SCHEMA: ClassVar[str] = """
        SELECT 1 FROM pg_namespace
        WHERE nspname = CAST(:schema AS text) AND has_schema_privilege(oid, CAST(:privilege AS text))
    """
    MAY_TABLE: ClassVar[str] = """
        SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = CAST(:name AS text) AND CASE
            WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, CAST(:privilege AS text))
            WHEN CAST(:privilege AS text) = 'DELETE' THEN has_table_privilege(c.oid, CAST(:privilege AS text))
            ELSE has_any_column_privilege(c.oid, CAST(:privilege AS text)) END
    """

    def may(self, privilege: str, on: str) -> Fetch:
        if on == SCHEMA:
            return Fetch(self.MAY_SCHEMA, {"schema": self.schema, "privilege": privilege})
        return Fetch(self.MAY_TABLE, {"schema": self.schema, "name": f"{self.prefix}{on}", "privilege": privilege})

    def grant(self, privilege: str, on: str, account: str) -> str:
        schema = self.quote(self.schema)
        what = {SCHEMA: f"SCHEMA {schema}", JOB_IDS: f"SEQUENCE {schema}.{self.prefix}{JOB_IDS}"}.get(
            on, self.qualify(on)
        )
        return f"GRANT {privilege} ON {what} TO {self.quote(account)}"

    def make_room(self) -> list[str]:
        if self.schema == "public":
            return []
        # Not IF NOT EXISTS alone: that wants the privilege to make schemas also where there is nothing to make.
        name = "'" + self.schema.replace("'", "''") + "'"
        make = f"CREATE SCHEMA IF NOT EXISTS {self.quote(self.schema)}"
        missing = f"NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name})"
        return [f"DO $dibs$ BEGIN IF {missing} THEN {make}; END IF; END $dibs$"]

    hurry = ("SET LOCAL lock_timeout = '500ms'",)

    LOCK_MIGRATIONS: ClassVar[str] = "SELECT pg_advisory_xact_lock(hashtext('dibs migrate ' || CAST(:schema AS text)))"

    def lock_migrations(self) -> Op[None]:
        yield from fetch(self.LOCK_MIGRATIONS, schema=f"{self.schema} {self.prefix}")

    SESSION: ClassVar[str] = "SELECT pg_backend_pid()"

    def session(self) -> Op[int]:
        rows = yield from fetch(self.SESSION, alone=True)
        return int(rows[0][0])

    def listen(self) -> Op[None]:
        yield from execute(f"LISTEN {self.quote(self.channel or '')}", alone=True)


def _array(numbers: Iterable[float]) -> str:
    """Return an array as text: half of what a driver takes to turn a list into one."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _done(verdicts: Sequence[Verdict], haste: float) -> dict[str, Value]:
    """Return what SETTLE_DONE takes of plain verdicts."""
    return {
        "ids": _array(verdict.id for verdict in verdicts),
        "claims": _array(verdict.claims for verdict in verdicts),
        "attempts": _array(verdict.attempts for verdict in verdicts),
        "ran": _array(verdict.ran or 0.0 for verdict in verdicts),
        "keep": _array(verdict.keep for verdict in verdicts),
        "results": [None if verdict.result is None else bytes(verdict.result).decode() for verdict in verdicts],
        "haste": _ms(haste),
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms"
