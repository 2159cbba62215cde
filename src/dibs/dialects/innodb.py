"""What MySQL and MariaDB have in common before any job is claimed: spelling, indexes, a look at the server.

Both lock the rows that a statement *reads*. So which index it goes by is a matter of who waits for whom, not of speed
alone, and is said here for every statement, the shared ones too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

from dibs.dialects.character_sets import carried
from dibs.dialects.dialect import Dialect
from dibs.dialects.spelling import JOB_IDS, SCHEMA, TABLES, utc
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseUnavailable, ReadOnlyDatabase, UnsuitableDatabase
from dibs.ops import Fetch, Op, Value, execute, fetch

T = TypeVar("T")

#: Before a statement on a user's connection. MariaDB (11.6.2 and later) would roll the user's transaction back, with
#: error 1020, if a row is newer than its snapshot. For this statement it takes the row as it is, like the others do.
AS_IT_IS = "/*M!110602 SET STATEMENT innodb_snapshot_isolation = OFF FOR */"

#: The isolation level of the session, which MySQL and MariaDB (10.6) have under different names.
ISOLATION = "/*M!100000 @@tx_isolation */ /*!80000 @@transaction_isolation */"

#: Which index a condition goes by. Left to itself the optimizer scans while a table is small or its statistics are
#: old, or goes by a status: then the statement meets rows that others hold, waits for them, and two of them deadlock.
_INDEXES = {
    ("dibs_jobs", "id {in_ids}"): "PRIMARY",
    ("dibs_jobs", "id = :id"): "PRIMARY",
    ("dibs_jobs", "status ="): "dibs_jobs_ready",
    ("dibs_jobs", "expires_at"): "dibs_jobs_finished",
    ("dibs_keys", "task ="): "PRIMARY",
    ("dibs_keys", "job_id"): "dibs_keys_job",
    ("dibs_duplicates", "job_id"): "dibs_duplicates_job",
}
_CONDITION = re.compile(
    r"(?P<delete>DELETE )?(?P<verb>FROM|UPDATE) (?P<table>dibs_\w+)(?P<set>\s+SET\s.*?)?"
    r"(?P<where>\s+WHERE (?P<condition>id \{in_ids\}|id = :id|task =|job_id|status =|expires_at))",
    re.DOTALL,
)

#: A DELETE scans a small table although an index is forced on it. From a list it goes to the rows one by one.
_DELETE_BY_ID = re.compile(r"DELETE FROM (dibs_\w+)\s+WHERE id \{in_ids\}")
_FROM_A_LIST = r"""DELETE \1 FROM JSON_TABLE(JSON_ARRAY:ids, '$[*]' COLUMNS (listed BIGINT PATH '$')) AS list
    STRAIGHT_JOIN \1 FORCE INDEX (PRIMARY) ON id = listed WHERE TRUE"""


class InnoDB(Dialect):
    """The part of the dialects of MySQL and MariaDB that is about the engine and the server."""

    family = "mysql"
    idle_poll = timedelta(seconds=0.5)
    frees_keys_later = True

    spelling: ClassVar[dict[str, str]] = {
        "now": "UTC_TIMESTAMP(6)",
        "soon": "UTC_TIMESTAMP(6) + INTERVAL :delay SECOND",
        "after_keeping": "UTC_TIMESTAMP(6) + INTERVAL COALESCE(retention, 604800) SECOND",
        # The drivers of dibs' own connections write a tuple as (1, 2, 3): a range of the primary key.
        "in_ids": "IN :ids",
        "in_tasks": "IN :tasks",
        "for_update": "FOR UPDATE",
        "skip_locked": "SKIP LOCKED",
        "nowait": "NOWAIT",
        "insert_new": "INSERT IGNORE",
        "or_nothing": "",
        "as_text": "",
        "sooner": "run_at - INTERVAL :seconds SECOND",
        "error_has": "LOCATE(:error, error) > 0",
        "since": "CAST(:since AS DATETIME(6))",
    }

    def spell(self, text: str) -> str:
        text = _DELETE_BY_ID.sub(_FROM_A_LIST, text)
        return super().spell(_CONDITION.sub(_through_its_index, text))

    def qualify(self, text: str) -> str:
        return super().qualify(text).replace("FORCE INDEX (dibs_", f"FORCE INDEX ({self.prefix}dibs_")

    def quote(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def ids(self, ids: Iterable[int]) -> Value:
        return tuple(ids)

    def names(self, names: Iterable[str]) -> Value:
        return tuple(names)

    def moment(self, value: Any) -> datetime:
        return utc(value)

    def written(self, moment: datetime) -> Value:
        # As text, since drivers write the time zone of a datetime in their own ways, or leave it out.
        return f"{utc(moment):%Y-%m-%d %H:%M:%S.%f}"

    # -- the server and the schema -----------------------------------------------------------------

    @classmethod
    def default_schema(cls, url: DatabaseUrl) -> str:
        if not url.database:
            raise ConfigurationError(f"{url} names no database: write it after the slash")
        return url.database

    #: What the URL has to say for this dialect, and the oldest version that has SKIP LOCKED and JSON_TABLE.
    scheme: ClassVar[str]
    oldest: ClassVar[tuple[int, int]]

    # By SHOW, which leaves out what a server does not know. A replica that takes writes looks like a primary.
    VARIABLES: ClassVar[str] = """
        SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', 'innodb_read_only',
            'transaction_read_only', 'tx_read_only', 'log_bin', 'binlog_format')
    """
    ENGINES: ClassVar[str] = """
        SELECT table_name, engine FROM information_schema.tables
        WHERE table_schema = :schema AND engine <> 'InnoDB' AND table_name IN :tables
    """

    def over_users_connection(self, op: Op[T]) -> Op[T]:
        return carried(op)

    def suitable(self) -> Op[None]:
        variables: dict[str, str] = dict((yield from fetch(self.VARIABLES, alone=True)))
        version = variables.pop("version")
        scheme = "mariadb" if "MariaDB" in version else "mysql"
        if scheme != self.scheme:
            raise UnsuitableDatabase(f"this server is {version}: write {scheme}:// in its URL, not {self.scheme}://")
        if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < self.oldest:
            oldest = ".".join(map(str, self.oldest))
            raise UnsuitableDatabase(f"dibs needs {self.name} {oldest} or later, this is {version}")
        for variable, setting in variables.items():
            if variable.endswith("read_only") and setting not in ("OFF", "0"):
                raise ReadOnlyDatabase(
                    f"this server takes no writes ({variable} = {setting}): point dibs at the primary"
                )
        if variables["log_bin"] == "ON" and variables.get("binlog_format") == "STATEMENT":
            raise UnsuitableDatabase(
                "binlog_format = STATEMENT can't log what is written at READ COMMITTED: SET GLOBAL binlog_format = ROW, or MIXED"
            )
        tables = tuple(f"{self.prefix}{table}" for table in TABLES)
        for table, engine in (yield from fetch(self.ENGINES, alone=True, schema=self.schema, tables=tables)):
            raise UnsuitableDatabase(
                f"the table {table} is in {engine}, which has no row locks: ALTER TABLE {table} ENGINE = InnoDB"
            )

    def database_of(self, schema: str) -> str | None:
        return None if schema == self.schema else schema

    # The view knows of roles, too. What one may delete it does not say, so that is asked for without being done.
    MAY: ClassVar[str] = """
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = :schema AND table_name = :name AND FIND_IN_SET(:privilege, privileges) LIMIT 1
    """

    def may(self, privilege: str, on: str) -> Fetch | None:
        if on in (SCHEMA, JOB_IDS):
            return None
        if privilege == "DELETE":
            return Fetch(f"EXPLAIN DELETE FROM {self.qualify(on)}", {})
        values = {"schema": self.schema, "name": f"{self.prefix}{on}", "privilege": privilege.lower()}
        return Fetch(self.MAY, values)

    def locking(self, table: str) -> str:
        return "UPDATE" if table == "dibs_jobs" else "DELETE"  # either will do; there, what is locked is deleted next

    def grant(self, privilege: str, on: str, account: str) -> str:
        user, _, host = account.rpartition("@")
        return super().grant(privilege, on, f"'{user}'@'{host}'")

    hurry = ("SET SESSION lock_wait_timeout = 1",)  # seconds, and no less
    longest_wait = 0.5

    OWN_SESSION: ClassVar[str] = "SELECT CONNECTION_ID()"
    WAITS_FOR_TABLE: ClassVar[str] = """
        SELECT id FROM information_schema.processlist WHERE id = :session AND LEFT(state, 17) = 'Waiting for table'
    """
    STOP_WAITING: ClassVar[str] = "KILL QUERY :session"

    def session(self) -> Op[int]:
        ((session,),) = yield from fetch(self.OWN_SESSION, alone=True)
        return int(session)

    def waits_for_table(self, session: int) -> Op[bool]:
        return bool((yield from fetch(self.WAITS_FOR_TABLE, alone=True, session=session)))

    def stop_waiting(self, session: int) -> Op[None]:
        yield from execute(self.STOP_WAITING, alone=True, session=session)

    LOCK_MIGRATIONS: ClassVar[str] = "SELECT GET_LOCK(:name, 31536000)"  # MariaDB knows no "for ever"
    UNLOCK_MIGRATIONS: ClassVar[str] = "SELECT RELEASE_LOCK(:name)"

    def lock_migrations(self) -> Op[None]:
        ((locked,),) = yield from fetch(self.LOCK_MIGRATIONS, name=self._migrations_lock)
        if locked != 1:
            raise DatabaseUnavailable("the lock that lets one process migrate at a time was not to be had")

    def unlock_migrations(self) -> Op[None]:
        yield from fetch(self.UNLOCK_MIGRATIONS, name=self._migrations_lock)

    @property
    def _migrations_lock(self) -> str:
        return f"dibs migrate {self.schema}"[:64]  # what a lock's name may have; two that share it wait a little


def _through_its_index(match: re.Match[str]) -> str:
    """Return a condition on a table with the index that it goes by. Only this form of DELETE takes one."""
    table = match["table"]
    delete = f"DELETE {table} " if match["delete"] else ""
    index = _INDEXES[table, match["condition"]]
    return f"{delete}{match['verb']} {table} FORCE INDEX ({index}){match['set'] or ''}{match['where']}"
