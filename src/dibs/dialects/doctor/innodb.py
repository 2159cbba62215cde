"""What examines MySQL and MariaDB."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from dibs.dialects.doctor.examining import Catalogue, Examining, Index, Room, judge_plan, room
from dibs.dialects.spelling import TABLES
from dibs.findings import Finding, Limits, ok, skipped, warn
from dibs.jobs import Lane
from dibs.ops import Op, execute, fetch


class ExaminingInnoDB(Examining):
    def look(self, account: str) -> str:
        user, _, host = account.rpartition("@")
        return f"GRANT PROCESS ON *.* TO '{user}'@'{host}'"

    HURRY: ClassVar[str] = "SET SESSION max_execution_time = :milliseconds"
    HURRY_MARIADB: ClassVar[str] = "SET SESSION max_statement_time = :seconds"

    def hurry(self, longest: float) -> Op[None]:
        if self.dialect.migrations == "mariadb":
            yield from execute(self.HURRY_MARIADB, seconds=longest)
        else:
            yield from execute(self.HURRY, milliseconds=int(longest * 1000))

    # -- the tables --------------------------------------------------------------------------------

    COLUMNS: ClassVar[str] = """
        SELECT table_name, column_name, column_type FROM information_schema.columns
        WHERE table_schema = :schema AND table_name IN :tables
    """
    INDEXES: ClassVar[str] = """
        SELECT index_name, column_name, /*!80000 is_visible = 'YES' */ /*M!100600 ignored = 'NO' */
        FROM information_schema.statistics
        WHERE table_schema = :schema AND table_name IN :tables ORDER BY table_name, index_name, seq_in_index
    """

    def catalogue(self) -> Op[Catalogue]:
        tables = tuple(f"{self.dialect.prefix}{table}" for table in TABLES)
        place: dict[str, Any] = {"schema": self.dialect.schema, "tables": tables}
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in (yield from fetch(self.COLUMNS, **place)):
            kind = kind.decode() if isinstance(kind, bytes) else kind
            # Some versions write how many digits a whole number is shown with.
            columns.setdefault(table, {})[column] = re.sub(r"int\(\d+\)", "int", kind.lower())
        indexes: dict[str, Index] = {}
        for name, column, used in (yield from fetch(self.INDEXES, **place)):
            known = indexes.get(name, Index(()))
            indexes[name] = Index((*known.columns, column), bool(used))
        return Catalogue(columns, indexes)

    def rebuild(self, index: str, create: str) -> str:
        table = create.partition(" ON ")[2].partition(" (")[0]
        return f"DROP INDEX {index} ON {table}; {create}"

    def plan(self, lane: Lane, tasks: list[str]) -> Op[Finding]:
        rows = yield from fetch(
            f"EXPLAIN FORMAT=TRADITIONAL {self.dialect.LOCK_NEXT}",  # type: ignore[attr-defined]
            **self.of_claim(lane, tasks),
        )
        index, problems = f"{self.dialect.prefix}dibs_jobs_ready", []
        for row in rows:
            # MySQL has two columns more than MariaDB, `partitions` and `filtered`.
            access, key, extra = row[4 if len(row) == 12 else 3], row[6 if len(row) == 12 else 5], row[-1] or ""
            if access is None:  # nothing can be there, which is found out without a plan
                continue
            if key != index or access in ("ALL", "index"):
                problems.append(f"it does not go by a range of {index}: {access}{f' by {key}' if key else ''}")
            if "filesort" in extra:
                problems.append("it sorts (filesort), so a claim locks every row of the lane")
        table = self.dialect.qualify("dibs_jobs")
        return judge_plan(index, problems, f"ANALYZE TABLE {table}; and see what `tables` says of the index")

    # -- what is not cleaned away ----------------------------------------------------------------------

    # Not what it asks: values of somebody's may be in it.
    OLDEST: ClassVar[str] = """
        SELECT t.trx_mysql_thread_id, p.user, p.host, p.command, TIMESTAMPDIFF(MICROSECOND, t.trx_started, NOW(6)) / 1e6,
            t.trx_query IS NOT NULL
        FROM information_schema.innodb_trx AS t
        LEFT JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
        WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 20
    """
    # MariaDB's own counter is among the status variables; the metric is on both, and always counts.
    HISTORY: ClassVar[str] = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
    # The view gives times in the zone of the server's machine; dibs' own sessions are in UTC.
    ZONE: ClassVar[str] = "SET SESSION time_zone = 'SYSTEM'"
    UTC: ClassVar[str] = "SET SESSION time_zone = '+00:00'"

    def snapshots(self, limits: Limits) -> Op[Finding]:
        yield from execute(self.ZONE)
        rows = yield from fetch(self.OLDEST)
        yield from execute(self.UTC)
        history = yield from fetch(self.HISTORY)
        length = int(history[0][0]) if history else 0
        old = [row for row in rows if float(row[4]) > limits.snapshot]
        if length > limits.history and not old:
            old = rows[:1]  # young, and yet the one whose view all these are kept for
        found = [
            f"session {number}, {user}@{host}, {'in a statement' if asks or command != 'Sleep' else 'idle in transaction'}, since {float(age):,.0f} s"
            for number, user, host, command, age, asks in old
        ]
        prepared = [number for number, *_ in old if not number]  # its session has gone
        fixes = [f"KILL {row[0]}" for row in old if row[0]]
        if prepared:
            fixes.append("XA RECOVER, then XA ROLLBACK each that nobody will end")
        if length > limits.history:
            found.append(f"history list of {length:,}")
            fixes = fixes or ["nobody's transaction is open any more: wait until the server has cleaned up"]
        if found:
            return warn(
                "; ".join(found),
                "old versions of rows stay, and every scan passes over them; locks of an open transaction stay, too",
                "; ".join(fixes),
            )
        return ok(f"none is older than {limits.snapshot:g} s, history list of {length:,}")

    def dead(self, limits: Limits) -> Op[Finding]:
        del limits
        yield from ()
        return skipped("what is dead is purged by the history list: see snapshots")

    # -- settings ----------------------------------------------------------------------------------------

    # The server's own, since dibs' sessions have some set. By SHOW, which leaves out what a server does not know.
    SETTINGS: ClassVar[str] = """
        SHOW GLOBAL VARIABLES WHERE Variable_name IN ('autocommit', 'transaction_isolation', 'tx_isolation',
            'innodb_lock_wait_timeout', 'lock_wait_timeout', 'max_execution_time', 'max_statement_time', 'wait_timeout',
            'idle_transaction_timeout', 'idle_write_transaction_timeout', 'idle_readonly_transaction_timeout',
            'max_connections')
    """

    def isolation(self) -> Op[Finding]:
        settings: dict[str, str] = dict((yield from fetch(self.SETTINGS)))
        level = settings.get("transaction_isolation") or settings.get("tx_isolation", "?")
        found = f"{level} (dibs' own transactions: READ COMMITTED), autocommit = {settings['autocommit']}"
        if level == "SERIALIZABLE":
            return warn(
                found,
                "your plain reads lock what they read: they hold up claims, and claims hold up them",
                "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ, and in the server's configuration",
            )
        if settings["autocommit"] in ("OFF", "0"):
            return warn(
                found,
                "a session that only reads has a transaction open all the same, and keeps old versions of rows",
                "SET GLOBAL autocommit = ON, and in the server's configuration",
            )
        return ok(found)

    def timeouts(self, limits: Limits) -> Op[Finding]:
        settings: dict[str, str] = dict((yield from fetch(self.SETTINGS)))
        lengths = {name: float(value) for name, value in settings.items() if name.endswith(("_timeout", "_time"))}
        lengths["max_execution_time"] = lengths.get("max_execution_time", 0.0) / 1000  # in ms, unlike all others
        found = ", ".join(f"{name} = {value:g} s" for name, value in sorted(lengths.items()) if value)
        short = [name for name, value in lengths.items() if 0 < value < limits.short]
        if cutting := [name for name in short if name.startswith("max_")]:
            return warn(
                found, f"{' and '.join(cutting)} cuts dibs' statements short", f"SET GLOBAL {cutting[0]} = 0, or longer"
            )
        if ending := [name for name in short if name == "wait_timeout" or name.startswith("idle_")]:
            return warn(
                found,
                f"{' and '.join(ending)} ends a session that pauses in a transaction: what that has enqueued is undone",
                f"SET GLOBAL {ending[0]} = {limits.short * 12:g}, or longer, and in the server's configuration",
            )
        if lengths["innodb_lock_wait_timeout"] < 1:
            return warn(
                f"innodb_lock_wait_timeout = 0 s{', ' if found else ''}{found}",
                "a transaction of yours that enqueues with a key fails (1205) where another is just taking that key",
                "SET GLOBAL innodb_lock_wait_timeout = 50, and in the server's configuration",
            )
        return ok(found)

    USED: ClassVar[str] = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Uptime')"
    # The session's value of this variable is what the account may open, whoever limits it; 0: as many as it likes.
    OF_ACCOUNT: ClassVar[str] = """
        SELECT @@SESSION.max_user_connections, CURRENT_USER(), count(*) FROM information_schema.processlist
        WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)
    """

    def connections(self, limits: Limits, *, wanted: int) -> Op[Finding]:
        settings: dict[str, str] = dict((yield from fetch(self.SETTINGS)))
        status: dict[str, str] = dict((yield from fetch(self.USED)))
        ((most, account, mine),) = yield from fetch(self.OF_ACCOUNT)
        fix = "SET GLOBAL max_connections = …, and in the server's configuration; or run fewer worker processes"
        rooms = [Room("", int(status["Threads_connected"]), int(settings["max_connections"]), fix)]
        if most:
            user, _, host = account.rpartition("@")
            fix = f"ALTER USER '{user}'@'{host}' WITH MAX_USER_CONNECTIONS …, SET GLOBAL max_user_connections = …"
            rooms.append(Room("this account's ", int(mine), int(most), fix))
        return room(rooms, wanted=wanted, limits=limits)

    ZONES: ClassVar[str] = "SELECT CONVERT_TZ('2020-01-01 00:00:00', 'UTC', 'Europe/Berlin') IS NOT NULL"

    def zones(self, *, wanted: bool) -> Op[Finding]:
        ((known,),) = yield from fetch(self.ZONES)
        if known:
            return ok("the server knows time zones by name")
        found = "the tables of time zones are empty"
        if not wanted:
            return ok(f"{found}; dibs does not need them")
        return warn(
            found,
            "a query that asks for a time in a zone gets NULL: what filters by date, such as Django's admin, fails",
            "mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql -u root mysql",
        )

    # MariaDB has it as a status variable, MySQL as a metric that always counts.
    DEADLOCKS: ClassVar[str] = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"

    def deadlocks(self, limits: Limits) -> Op[Finding]:
        status: dict[str, str] = dict((yield from fetch(self.USED)))
        ((number,),) = yield from fetch(self.DEADLOCKS)
        return self.deadlock_rate(int(number), float(status["Uptime"]), limits)
