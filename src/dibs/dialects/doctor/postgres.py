"""What examines PostgreSQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from dibs.dialects.doctor.examining import Catalogue, Examining, Index, Room, judge_plan, room
from dibs.dialects.spelling import TABLES
from dibs.findings import Finding, Limits, fail, ok, warn
from dibs.jobs import Lane
from dibs.ops import Op, fetch


class ExaminingPostgres(Examining):
    def look(self, account: str) -> str:
        return f"GRANT pg_monitor TO {self.dialect.quote(account)}"

    # For this transaction alone: behind a pooler the session is somebody else's afterwards.
    HURRY: ClassVar[str] = "SELECT set_config('statement_timeout', CAST(:longest AS text), true)"

    def hurry(self, longest: float) -> Op[None]:
        yield from fetch(self.HURRY, longest=f"{longest * 1000:.0f}ms")

    # -- the tables --------------------------------------------------------------------------------

    COLUMNS: ClassVar[str] = """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = ANY(CAST(:tables AS text[])) AND c.relkind IN ('r', 'p')
    """
    INDEXES: ClassVar[str] = """
        SELECT i.relname, x.indisvalid AND x.indisready, x.indpred IS NOT NULL,
            ARRAY(SELECT pg_get_indexdef(x.indexrelid, place, true) FROM generate_series(1, x.indnkeyatts) AS place)
        FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
        JOIN pg_class AS c ON c.oid = x.indrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = CAST(:schema AS text) AND c.relname = ANY(CAST(:tables AS text[]))
    """

    def catalogue(self) -> Op[Catalogue]:
        place: dict[str, Any] = {"schema": self.dialect.schema, "tables": self._tables}
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in (yield from fetch(self.COLUMNS, **place)):
            columns.setdefault(table, {})[column] = str(kind).replace("timestamp with time zone", "timestamptz")
        rows = yield from fetch(self.INDEXES, **place)
        return Catalogue(columns, {name: Index(tuple(of), valid, where) for name, valid, where, of in rows})

    @property
    def _tables(self) -> list[str]:
        return [f"{self.dialect.prefix}{table}" for table in TABLES]

    def rebuild(self, index: str, create: str) -> str:
        name = f"{self.dialect.quote(self.dialect.schema)}.{self.dialect.quote(index)}"
        return f"DROP INDEX {name}; {create}"

    def plan(self, lane: Lane, tasks: list[str]) -> Op[Finding]:
        claim: str = self.dialect.CLAIM  # type: ignore[attr-defined]
        found = re.search(r"picked AS MATERIALIZED \((.*?)\n\s*\), ranked", claim, re.DOTALL)
        assert found, "the claim picks its rows in a WITH"
        ((plan,),) = yield from fetch(
            f"EXPLAIN (FORMAT JSON) {found[1]}",
            **self.of_claim(lane, tasks),
        )
        index, problems = f"{self.dialect.prefix}dibs_jobs_ready", []
        scans = []
        for node in _nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]):
            if "Sort" in node["Node Type"]:
                problems.append(f"it sorts: {node['Node Type']} by {', '.join(node.get('Sort Key', ()))}")
            if node.get("Relation Name") == f"{self.dialect.prefix}dibs_jobs" or "Bitmap" in node["Node Type"]:
                scans.append(node)
        for node in scans:
            if node.get("Index Name") != index or "Bitmap" in node["Node Type"]:
                by = f" by {node['Index Name']}" if node.get("Index Name") else ""
                problems.append(f"it does not go by {index}: {node['Node Type']}{by}")
            # `status` is there all the same: a row that was changed meanwhile is looked at again before it is locked.
            elif odd := [name for name in ("queue", "priority", "run_at") if name in node.get("Filter", "")]:
                problems.append(f"{' and '.join(odd)} is a filter, not the range that it reads")
        return judge_plan(
            index, problems, f"ANALYZE {self.dialect.qualify('dibs_jobs')}; and see what `tables` says of the index"
        )

    # -- what is not cleaned away ----------------------------------------------------------------------

    # Of other databases only what counts here too: a walsender. `age` in seconds, NULL where nobody knows.
    HOLDERS: ClassVar[str] = """
        SELECT 'session ' || pid || ', ' || coalesce(usename, '?') || CASE WHEN application_name <> '' THEN ', ' ||
                application_name ELSE '' END || coalesce(', ' || client_addr, '') || ', ' || coalesce(state, backend_type),
            extract(epoch FROM clock_timestamp() - coalesce(xact_start, query_start)),
            'SELECT pg_terminate_backend(' || pid || ')'
        FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
          AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%')
          AND clock_timestamp() - xact_start > CAST(:oldest AS float8) * interval '1 second'
        UNION ALL
        SELECT 'prepared transaction ' || gid || ', ' || owner, extract(epoch FROM clock_timestamp() - prepared),
            'ROLLBACK PREPARED ' || quote_literal(gid)
        FROM pg_prepared_xacts
        WHERE database = current_database()
          AND clock_timestamp() - prepared > CAST(:oldest AS float8) * interval '1 second'
        UNION ALL
        SELECT 'standby ' || application_name || coalesce(', ' || client_addr, '') || ' (hot_standby_feedback)', NULL,
            CAST(:end_feedback AS text)
        FROM pg_stat_replication WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > CAST(:history AS bigint)
        LIMIT 20
    """

    HIDDEN: ClassVar[str] = """
        SELECT count(*), current_user FROM pg_stat_activity
        WHERE datname = current_database() AND query = '<insufficient privilege>'
    """

    # What a slot holds back is held back whether somebody reads it or not; since when nobody does is known from 17 on.
    SLOTS: ClassVar[str] = """
        SELECT s.slot_name, s.slot_type, s.active, coalesce(r.application_name, '') || coalesce(', ' || r.client_addr, ''),
            extract(epoch FROM clock_timestamp() - CAST(to_jsonb(s) ->> 'inactive_since' AS timestamptz)),
            'SELECT pg_drop_replication_slot(' || quote_literal(s.slot_name) || ')',
            age(s.xmin), age(s.catalog_xmin), pg_wal_lsn_diff(
                CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn)
        FROM pg_replication_slots AS s LEFT JOIN pg_stat_replication AS r ON r.pid = s.active_pid ORDER BY s.slot_name
    """

    def snapshots(self, limits: Limits) -> Op[Finding]:
        ((hidden, account),) = yield from fetch(self.HIDDEN)
        rows = yield from fetch(
            self.HOLDERS, oldest=limits.snapshot, history=limits.history, end_feedback=_END_FEEDBACK
        )
        slots = yield from fetch(self.SLOTS)
        found = [who if age is None else f"{who}, since {float(age):,.0f} s" for who, age, _ in rows]
        why = [
            "rows that were deleted since stay in the table and its indexes, and every scan passes over them"
        ] * bool(rows)
        fixes = [fix for _, _, fix in rows]
        for name, kind, active, reader, idle, drop, *kept in slots:
            keeps = _kept_by_slot(not active and (idle is None or idle > limits.snapshot), *kept, limits=limits)
            if keeps:
                since = "" if idle is None else f" since {float(idle):,.0f} s"
                whose = f"read by {reader or '?'}" if active else f"which nobody reads{since}"
                found.append(f"replication slot {name} ({kind}), {whose}, keeps {' and '.join(keeps)}")
                why.append(_WHY_SLOTS)
                fixes.append(_END_FEEDBACK if active else f"{drop}, if nobody is to read it again")
        if found:
            return warn("; ".join(found), "; ".join(dict.fromkeys(why)), "; ".join(dict.fromkeys(fixes)))
        if hidden:
            return warn(
                f"{hidden} sessions of other users can't be looked at by this account",
                "one of them may hold a snapshot that keeps dead rows from being cleaned away",
                self.look(account),
            )
        return ok(f"none is older than {limits.snapshot:g} s")

    DEAD: ClassVar[str] = """
        SELECT s.relname, s.n_dead_tup, s.n_live_tup, pg_relation_size(s.relid),
            extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)),
            coalesce(c.reloptions @> ARRAY['autovacuum_enabled=false'] OR c.reloptions @> ARRAY['autovacuum_enabled=off'], false),
            current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on'
        FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
        WHERE s.schemaname = CAST(:schema AS text) AND s.relname = ANY(CAST(:tables AS text[]))
        ORDER BY s.n_dead_tup DESC
    """

    def dead(self, limits: Limits) -> Op[Finding]:
        rows = yield from fetch(self.DEAD, schema=self.dialect.schema, tables=self._tables)
        why = "dead rows stay in the way of every claim until they are cleaned away"
        if rows and not rows[0][6]:
            return fail(
                "autovacuum is off", why, "ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; "
                "SELECT pg_reload_conf()"
            )  # fmt: skip
        if off := [row[0] for row in rows if row[5]]:
            fixes = [f"ALTER TABLE {self._name(table)} RESET (autovacuum_enabled)" for table in off]
            return warn(f"autovacuum is off for {', '.join(off)}", why, "; ".join(fixes))
        # A busy queue has many for a moment, until they are vacuumed.
        late = [row for row in rows if row[4] is None or row[4] > limits.snapshot]
        if many := [row for row in late if row[1] > limits.dead and row[1] > row[2]]:
            found = [
                f"{table}: {dead:,} dead rows, {live:,} live, {_ago(run)}" for table, dead, live, _, run, *_ in many
            ]
            return warn("; ".join(found), why, "; ".join(f"VACUUM {self._name(row[0])}" for row in many))
        if not rows:
            return ok("nothing yet")
        table, dead, live, bytes_, run, *_ = rows[0]
        return ok(f"{table}: {dead:,} dead rows, {live:,} live, {bytes_ / 2**20:,.1f} MB, {_ago(run)}")

    def _name(self, table: str) -> str:
        return f"{self.dialect.quote(self.dialect.schema)}.{table}"

    # -- settings ----------------------------------------------------------------------------------------

    # What a session gets by itself; dibs' own have some of these set otherwise.
    SETTINGS: ClassVar[str] = """
        SELECT name, CASE WHEN unit = 'ms' THEN CAST(CAST(reset_val AS float8) / 1000 AS text) ELSE reset_val END
        FROM pg_settings WHERE name IN ('default_transaction_isolation', 'lock_timeout', 'statement_timeout',
            'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout')
    """

    def isolation(self) -> Op[Finding]:
        settings: dict[str, str] = dict((yield from fetch(self.SETTINGS)))
        level = settings["default_transaction_isolation"]
        found = f"{level} (dibs' own transactions: read committed)"
        if level in ("serializable", "repeatable read"):
            return warn(
                found,
                "your transactions in which jobs are enqueued with a key, or finished, may be refused (40001) and must "
                "be tried again by you",
                "ALTER ROLE CURRENT_USER SET default_transaction_isolation = 'read committed', if you did not mean it",
            )
        return ok(found)

    def timeouts(self, limits: Limits) -> Op[Finding]:
        rows = yield from fetch(self.SETTINGS)
        settings = {name: float(value) for name, value in rows if name != "default_transaction_isolation"}
        found = ", ".join(
            f"{name} = {value:g} s" if value else f"{name} off" for name, value in sorted(settings.items())
        )
        cutting = ("statement_timeout", "transaction_timeout", "idle_session_timeout")
        if short := [name for name in cutting if 0 < settings.get(name, 0.0) < limits.short]:
            return warn(
                found,
                f"{' and '.join(short)} ends dibs' statements or sessions, which then are tried again",
                "; ".join(f"ALTER ROLE CURRENT_USER SET {name} = '{limits.short * 2:g}s'" for name in short),
            )
        return ok(found)

    CONNECTIONS: ClassVar[str] = """
        SELECT count(*), count(*) FILTER (WHERE datname = current_database()), count(*) FILTER (WHERE usename = current_user),
            CAST(current_setting('max_connections') AS integer)
                - CAST(current_setting('superuser_reserved_connections') AS integer)
                - coalesce(CAST(current_setting('reserved_connections', true) AS integer), 0),
            (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
            (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user), quote_ident(current_database())
        FROM pg_stat_activity WHERE backend_type = 'client backend'
    """

    def connections(self, limits: Limits, *, wanted: int) -> Op[Finding]:
        ((used, here, mine, limit, of_database, of_role, database),) = yield from fetch(self.CONNECTIONS)
        fix = "ALTER SYSTEM SET max_connections = …, and restart; or run fewer worker processes, or a pooler"
        rooms = [Room("", used, limit, fix)]
        if of_database >= 0:
            rooms.append(Room("this database's ", here, of_database, f"ALTER DATABASE {database} CONNECTION LIMIT -1"))
        if of_role >= 0:
            rooms.append(Room("this role's ", mine, of_role, "ALTER ROLE CURRENT_USER CONNECTION LIMIT -1"))
        return room(rooms, wanted=wanted, limits=limits)

    DEADLOCKS: ClassVar[str] = """
        SELECT deadlocks, extract(epoch FROM clock_timestamp() - coalesce(stats_reset, pg_postmaster_start_time()))
        FROM pg_stat_database WHERE datname = current_database()
    """

    def deadlocks(self, limits: Limits) -> Op[Finding]:
        ((number, seconds),) = yield from fetch(self.DEADLOCKS)
        return self.deadlock_rate(int(number), float(seconds), limits)


_END_FEEDBACK = "end the long query on the standby, or set hot_standby_feedback = off there"
_WHY_SLOTS = (
    "what its reader may still want is kept until it has been read: dead rows stay in the way of every scan, WAL fills the "
    "disk until the server stops"
)


def _kept_by_slot(unread: bool, rows: int | None, catalogue: int | None, wal: Any, *, limits: Limits) -> list[str]:
    """Return what a slot keeps that is worth a word; `rows` and `catalogue` count transactions, `wal` bytes."""
    keeps = []
    if rows is not None and (unread or rows > limits.history):
        keeps.append("dead rows")
    if catalogue is not None and catalogue > limits.history:
        keeps.append("dead rows of the catalogue")
    if unread and wal is not None and wal > limits.wal:
        keeps.append(f"{float(wal) / 2**20:,.0f} MB of WAL")
    return keeps


def _ago(seconds: Any) -> str:
    return "never vacuumed" if seconds is None else f"vacuumed {float(seconds):,.0f} s ago"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)
