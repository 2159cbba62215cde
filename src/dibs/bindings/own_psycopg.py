"""dibs' own connections to PostgreSQL, over psycopg 3."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import TextBinaryLoader, TextLoader

from dibs.bindings.cursors import spelt
from dibs.bindings.readable import readable
from dibs.bindings.refusals import reason, unreachable
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseError
from dibs.ops import Fetch, Request
from dibs.params import Style
from dibs.troubles import Trouble

#: For libpq, unless the URL says otherwise. A peer that vanished is noticed within 25 s.
PARAMETERS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}

#: Where the URL names several hosts: the one that takes writes, and no long waiting for one that is gone.
SEVERAL = {"target_session_attrs": "read-write", "connect_timeout": 3}

#: For the session, unless the URL's `options` name them.
SETTINGS = {
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "60s",  # a frozen process lets go of its rows
    "TimeZone": "UTC",
    "DateStyle": "ISO",  # psycopg reads times in no other
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
    "jit": "off",  # our statements take less than compiling them would, whatever a stale estimate says
}

#: A prepared statement's plan is kept until the table's statistics are taken anew, which the server does once a minute at
#: best. One that was made while the queue was empty scans the table, and the queue may be long by then (measured:
#: settling took 8 ms, and 200 ms when 250,000 jobs had come). So plans are made anew after so many seconds (2 ms for all
#: of them), if they were used so many times.
REPLAN_EVERY = 2.0
REPLAN_AFTER = 20

#: How a worker's statements are planned: each goes to the rows that it names, by an index. A planner that takes the queue
#: to be short reads all of it instead (measured, 20,000 rows: settling 500 took 12 ms for 4). So all values lead to the
#: same plan, and to make it anew for each is lost time (a quarter of the 0.8 ms of a statement that settles and claims).
BY_INDEX = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"

TROUBLES = {
    "40001": Trouble.CONFLICT,  # serialization failure
    "40P01": Trouble.CONFLICT,  # deadlock
    "72000": Trouble.CONFLICT,  # snapshot too old
    "55P03": Trouble.LOCKED,  # lock_timeout, NOWAIT
    "57014": Trouble.LOCKED,  # cancelled by the role's statement_timeout or by a person: another time may do
    "25006": Trouble.READ_ONLY,
    "42P01": Trouble.NO_TABLE,
    "42703": Trouble.NO_TABLE,  # no such column
    "3F000": Trouble.NO_TABLE,  # no such schema
    "42501": Trouble.DENIED,
    "25P03": Trouble.LOST,  # idle_in_transaction_session_timeout
    "25P04": Trouble.LOST,  # transaction_timeout
    "57P01": Trouble.LOST,  # the server is being stopped, or somebody ended this session
    "57P02": Trouble.LOST,
    "57P03": Trouble.LOST,  # the server is starting
    "57P04": Trouble.LOST,
    "57P05": Trouble.LOST,  # idle_session_timeout
    "26000": Trouble.LOST,  # a prepared statement is missing, or there already: a pooler at work
    "42P05": Trouble.LOST,
    "53300": Trouble.LOST,  # no connections left
    # No memory, no disk; an I/O error. Not our statement's fault, and over when somebody has seen to it.
    "53": Trouble.FULL,
    "58": Trouble.FULL,
    "08": Trouble.LOST,
}


def connect(url: DatabaseUrl, *, name: str) -> OwnPsycopg:
    """Open a connection; raise DatabaseUnavailable or ConfigurationError.

    The URL may have all parameters that libpq knows. Of several hosts it is the first that takes writes.
    """
    parameters = _parameters(url)
    if "," in f"{parameters.get('host')} {parameters.get('hostaddr')}":
        parameters = {**SEVERAL, **parameters}
    options = str(parameters.get("options", "")).lower()
    settings = {key: value for key, value in SETTINGS.items() if key.lower() not in options}
    raw = None
    try:
        raw = PatientConnection.connect(
            autocommit=True,
            **{**PARAMETERS, "fallback_application_name": name, **parameters, "client_encoding": "UTF8"},
        )
        return OwnPsycopg(raw, settings)
    except psycopg.Error as error:
        if raw is not None:
            raw.close()
        # psycopg says twice what the last of several hosts said.
        said = str(error).rpartition("All failures were:")[2]
        raise unreachable(url, said, _advice(said)) from error


def _parameters(url: DatabaseUrl) -> dict[str, Any]:
    """Have libpq read the URL, since it knows its own parameters best."""
    password = f":{quote(url.password, safe='')}" if url.password else ""
    user = f"{quote(url.user, safe='')}{password}@" if url.user or password else ""
    query = urlencode(url.query, quote_via=quote)
    try:
        return dict(conninfo_to_dict(f"postgresql://{user}{url.hosts}/{quote(url.database, safe='')}?{query}"))
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(
            f"not a database URL that PostgreSQL's library reads: {url}: {reason(url, str(error))}"
        ) from None


def _advice(said: str) -> str:
    if "authentication failed" in said or "no password supplied" in said or 'role "' in said:
        return "check the user and the password in the URL"
    if 'database "' in said and "does not exist" in said:
        return "create the database first, dibs only makes its tables"
    if "session is read-only" in said or "server is in hot standby" in said:
        return "none of these servers takes writes now"
    return ""


class PatientConnection(psycopg.Connection[Any]):
    """A connection that gives up when no answer has come for `patience` seconds.

    libpq and the kernel notice a peer that vanished, but not a proxy that takes our bytes and passes none on.
    """

    patience: float | None = 30.0

    def wait(self, gen: Generator[Any, Any, Any], *how: Any, **named: Any) -> Any:
        if self.patience is not None:
            gen = self._patiently(gen, self.patience)
        return super().wait(gen, *how, **named)

    def _patiently(self, gen: Generator[Any, Any, Any], patience: float) -> Generator[Any, Any, Any]:
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() > heard + patience:  # psycopg says "not ready" every tenth of a second
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {patience:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


class OwnPsycopg:
    """Statements are prepared when they come again, as psycopg does, unless a pooler stands between.

    A pooler that lends server sessions by the transaction is known by the process id, which it invents.
    Behind it nothing is prepared, and the settings go with each transaction: on a session they'd be others'.
    """

    family = "postgresql"
    may_be_forked = True

    def __init__(self, raw: PatientConnection, settings: dict[str, str]) -> None:
        self._raw = raw
        # One type for all whole numbers: by size, as psycopg does, each would prepare the statement anew.
        raw.adapters.register_dumper(int, Int8Dumper)
        # JSON stays the text it is: whoever wants it parsed says how.
        raw.adapters.register_loader("json", TextLoader)
        raw.adapters.register_loader("json", TextBinaryLoader)
        # The raw cursor's `$1` is what the server wants: nothing is parsed on the way. Where a statement is longer
        # than the 4 kB up to which psycopg remembers what it parsed, a request takes 76 µs instead of 86.
        self._cursor: psycopg.RawCursor[Any] = psycopg.RawCursor(raw, row_factory=tuple_row)
        calls = ", ".join(f"set_config('{key}', '{value}', false)" for key, value in settings.items())
        direct = self._cursor.execute(
            f"SELECT CASE WHEN pg_backend_pid() = $1 THEN row({calls}) IS NOT NULL END".encode(),
            [raw.info.backend_pid],
        ).fetchone()
        self._used, self._planned = 0, time.monotonic()
        self._begin = BEGIN
        self.pooled = direct == (None,)
        if self.pooled:
            raw.prepare_threshold = None
            self._begin += "".join(f"; SET LOCAL {key} = '{value}'" for key, value in settings.items())

    @property
    def patience(self) -> float | None:
        return self._raw.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._raw.patience = seconds

    @property
    def session(self) -> int | None:
        return None if self.pooled else self._raw.info.backend_pid

    def answer(self, request: Request) -> Any:
        self._used += 1
        if self._used > REPLAN_AFTER and time.monotonic() - self._planned > REPLAN_EVERY:
            self._plan_anew()
        text, values = spelt(request, Style.DOLLAR)
        try:
            cursor = self._cursor.execute(text.encode(), values, binary=request.compact)
        except psycopg.errors.UniqueViolation as error:
            raise _told(error) from error
        return cursor.fetchall() if isinstance(request, Fetch) else cursor.rowcount

    def _plan_anew(self) -> None:
        if self._raw.prepare_threshold is not None:
            self._cursor.execute(b"DISCARD PLANS", prepare=False)
        self._used, self._planned = 0, time.monotonic()

    @property
    def commits_alone(self) -> bool:
        return self._raw.info.transaction_status == TransactionStatus.IDLE

    def begin(self, *, writes: bool = True) -> None:
        self._cursor.execute(self._begin.encode())

    def commit(self) -> None:
        self._cursor.execute(b"COMMIT")

    def rollback(self) -> None:
        if not self.commits_alone:
            self._cursor.execute(b"ROLLBACK")

    def prefer_indexes(self) -> None:
        if self.pooled:
            self._begin += "".join(f"; SET LOCAL {key} = {value}" for key, value in BY_INDEX.items())
        else:
            self._cursor.execute("; ".join(f"SET {key} = {value}" for key, value in BY_INDEX.items()).encode())

    def hear(self, timeout: float) -> list[str]:
        patience, self._raw.patience = self._raw.patience, None
        try:
            return [told.payload for told in self._raw.notifies(timeout=timeout, stop_after=1)]
        finally:
            self._raw.patience = patience

    def unasked(self) -> bool:
        return self._raw.closed or readable(self._raw.pgconn.socket)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._raw.close()

    def trouble(self, error: BaseException) -> Trouble:
        return Trouble.LOST if self._raw.closed or self._raw.broken else trouble(error)


def _told(error: psycopg.errors.UniqueViolation) -> Exception:
    """Return the error as one that says what to do, if it is that new ids are taken: then each enqueue will meet it."""
    where = error.diag
    if where.table_name is None or where.constraint_name != f"{where.table_name}_pkey" or "(id)" not in str(error):
        return error
    table = f'"{where.schema_name}".{where.table_name}'
    return DatabaseError(
        f"the sequence of {table} gives ids that are taken, as it may after a restore or on what was a logical replica: "
        f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table})) ({error.diag.message_primary})"
    )


def trouble(error: BaseException) -> Trouble:
    """Say what kind of trouble an error of psycopg's is, on a connection that is still open."""
    if not isinstance(error, psycopg.Error):
        return Trouble.OTHER
    code = error.sqlstate
    if code is None:
        return Trouble.LOST if isinstance(error, psycopg.OperationalError) else Trouble.OTHER
    if isinstance(error, psycopg.errors.FeatureNotSupported) and "cached plan" in str(error):
        return Trouble.LOST  # a migration changed what a prepared statement returns: a new session plans anew
    return TROUBLES.get(code) or TROUBLES.get(code[:2], Trouble.OTHER)
