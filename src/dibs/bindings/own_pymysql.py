"""dibs' own connections to MySQL and MariaDB, over PyMySQL."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import pymysql
from pymysql.constants import ER
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.cursors import Cursor

from dibs.bindings.cursors import spelt
from dibs.bindings.readable import readable
from dibs.bindings.refusals import odd_parameters, reason, unreachable
from dibs.dialects.urls import DatabaseUrl
from dibs.errors import ConfigurationError, DatabaseUnavailable, ReadOnlyDatabase
from dibs.ops import Fetch, Insert, Request
from dibs.params import Style
from dibs.troubles import Trouble

PARAMETERS = (
    "charset",
    "connect_timeout",
    "read_timeout",
    "write_timeout",
    "ssl_mode",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
    "unix_socket",
)
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")

CONNECT_TIMEOUT = 10.0
CONNECT_TIMEOUT_OF_SEVERAL = 3.0  # one that is gone must not keep us long from one that is there
PATIENCE = 30.0

ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

#: `lock_wait_timeout` is for the locks of tables, which SKIP LOCKED waits for too; a year by default.
#: `wait_timeout` ends what is idle: a process that froze in a transaction does not hold its rows for ever.
SETTINGS: dict[str, int | str] = {
    "time_zone": "+00:00",
    "sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "sql_safe_updates": 0,
    "sql_select_limit": 2**64 - 1,
    "innodb_lock_wait_timeout": 5,
    "lock_wait_timeout": 10,
    "wait_timeout": 300,
}
#: MariaDB can be stricter with a transaction than with an idle connection.
MARIADB_SETTINGS = {
    "idle_transaction_timeout": 60,
    "in_predicate_conversion_threshold": 0,  # from 1,000 on it would make a table of a list of ids, and scan ours
}

_CODES = {
    # Deadlock; MariaDB: "record has changed since last read"; the table was altered; a commit that the other servers of a
    # cluster have refused.
    Trouble.CONFLICT: (1213, 1020, 1412, 1180, 3101),
    # Timeout (MariaDB: NOWAIT too), NOWAIT. Cut short by a person or a time limit: another time may do.
    Trouble.LOCKED: (1205, 3572, 1317, 3024, 1969),
    # No disk, no memory, no room for locks: not our statement's fault, and over when somebody has seen to it.
    # 1226: what the account may do in an hour.
    Trouble.FULL: (3, 1021, 1026, 1037, 1038, 1041, 1114, 1206, 1226, 1637),
    Trouble.READ_ONLY: (1290, 1792, 1836),
    Trouble.UNSUITABLE: (1665, 1598),  # statement-based binary log under READ COMMITTED
    Trouble.NO_TABLE: (1146, 1054, 1049, 1932),
    Trouble.DENIED: (1142, 1143, 1044, 1227, 1370),
    # The session was ended; the server is stopping, or not ready (1047, 3100: a node outside its cluster; 3032: offline).
    Trouble.LOST: (
        *(1047, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3032, 3100, 3169, 4031),
        *(2002, 2003, 2006, 2013, 2014, 2055),  # the driver's own
    ),
}
TROUBLES = {code: trouble for trouble, codes in _CODES.items() for code in codes}

_connect: Any = pymysql.connect  # PyMySQL has no types
_error: Any = pymysql.OperationalError


def connect(url: DatabaseUrl, *, name: str) -> OwnPymysql:
    """Open a connection; raise DatabaseUnavailable, ReadOnlyDatabase or ConfigurationError.

    The URL may have any of PARAMETERS. Of several hosts it is the first that takes writes: the drivers know one only, so
    they are tried here.
    """
    options = _options(url)
    if "," not in url.hosts:
        return _connect_to(url, options, name=name)
    failures: list[DatabaseUnavailable | ReadOnlyDatabase] = []
    for host, port in url.addresses:
        try:
            connection = _connect_to(url, {**options, "host": host, "port": port or 0}, name=name)
        except DatabaseUnavailable as failure:
            failures.append(failure)
            continue
        if not connection.read_only:
            return connection
        connection.close()
        failures.append(ReadOnlyDatabase(f"{host}:{port or 3306} takes no writes"))
    said = "; ".join(str(failure).replace(f"cannot connect to {url}: ", "") for failure in failures)
    if any(isinstance(failure, ReadOnlyDatabase) for failure in failures):
        raise ReadOnlyDatabase(f"none of the servers of {url} takes writes now: {said}")
    raise DatabaseUnavailable(f"cannot connect to {url}: {said}") from failures[-1]


def _connect_to(url: DatabaseUrl, options: dict[str, Any], *, name: str) -> OwnPymysql:
    # PyMySQL's own connect_timeout ends with the greeting; what follows may hang as well.
    timeouts = {
        timeout: min(options[timeout], options["connect_timeout"]) for timeout in ("read_timeout", "write_timeout")
    }
    try:
        raw: Any = _connect(**{**options, **timeouts}, program_name=name, autocommit=True)
    except pymysql.Error as error:
        raise unreachable(url, _said(error), _advice(error)) from error
    except RuntimeError as error:  # PyMySQL wants the package `cryptography` for a password without TLS
        raise ConfigurationError(f'{reason(url, str(error))}: pip install "dibs[mysql]"') from error
    if options.get("ssl") and not getattr(raw, "_secure", True):  # PyMySQL before 1.2 would go on without
        raw.close()
        raise DatabaseUnavailable(f"cannot connect to {url}: TLS was asked for and the server has none")
    try:
        own = OwnPymysql(raw)
    except pymysql.Error as error:
        raw.close()
        raise unreachable(url, _said(error), _advice(error)) from error
    raw._read_timeout, raw._write_timeout = options["read_timeout"], options["write_timeout"]
    return own


def _options(url: DatabaseUrl) -> dict[str, Any]:
    if odd := odd_parameters(url, PARAMETERS):
        raise odd
    if url.query.get("charset", "utf8mb4").lower() != "utf8mb4":
        raise ConfigurationError(f"charset={url.query['charset']} in {url}: only utf8mb4 holds every text")
    return {
        "host": url.host or None,
        "port": url.port or 0,
        "user": url.user or None,
        "password": url.password.encode(),  # PyMySQL would take a text for latin-1
        "database": url.database or None,
        "unix_socket": url.query.get("unix_socket"),
        "charset": "utf8mb4",
        "connect_timeout": _seconds(
            url, "connect_timeout", CONNECT_TIMEOUT_OF_SEVERAL if "," in url.hosts else CONNECT_TIMEOUT
        ),
        "read_timeout": _seconds(url, "read_timeout", PATIENCE),
        "write_timeout": _seconds(url, "write_timeout", PATIENCE),
        **_tls(url),
    }


def _seconds(url: DatabaseUrl, name: str, default: float) -> float:
    try:
        seconds = float(url.query.get(name, default))
    except ValueError:
        seconds = 0
    if seconds <= 0:
        raise ConfigurationError(f"{name}={url.query[name]} in {url}: write a number of seconds above 0")
    return seconds


def _tls(url: DatabaseUrl) -> dict[str, Any]:
    """Turn the parameters, which mean what they mean to MySQL's own clients, into PyMySQL's."""
    authority, certificate = url.query.get("ssl_ca"), url.query.get("ssl_cert")
    usual = "VERIFY_CA" if authority else "REQUIRED" if certificate else "PREFERRED"
    mode = url.query.get("ssl_mode", usual).upper()
    if mode not in SSL_MODES:
        raise ConfigurationError(f"ssl_mode={mode} in {url}: write one of {', '.join(SSL_MODES)}")
    if mode == "PREFERRED":
        return {}
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    try:
        tls = ssl.create_default_context(cafile=authority)
        if certificate:
            tls.load_cert_chain(certificate, url.query.get("ssl_key"))
    except OSError as error:
        raise ConfigurationError(f"the certificates that {url} names cannot be read: {error}") from error
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the certificates that MySQL makes for itself are not that strict
    tls.check_hostname = mode == "VERIFY_IDENTITY"
    tls.verify_mode = ssl.CERT_REQUIRED if mode.startswith("VERIFY") else ssl.CERT_NONE
    return {"ssl": tls}


def _said(error: pymysql.Error) -> str:
    return f"{error.args[1]} ({error.args[0]})" if len(error.args) > 1 else str(error)


def _advice(error: pymysql.Error) -> str:
    code = error.args[0] if error.args else 0
    if code in (ER.ACCESS_DENIED_ERROR, 1698):
        return "check the user and the password in the URL"
    if code == ER.DBACCESS_DENIED_ERROR:
        return "grant the user the database that the URL names"
    if code == ER.BAD_DB_ERROR:
        return "create the database first, dibs only makes its tables"
    return ""


class OwnPymysql:
    """Counts rows that changed, not rows that were found; values are written into the statement's text."""

    family = "mysql"
    may_be_forked = True
    pooled = False  # not that one could tell; nothing that a session keeps is relied on

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._cursor = raw.cursor(Cursor)
        settings = SETTINGS | (MARIADB_SETTINGS if "MariaDB" in raw.get_server_info() else {})
        self._cursor.execute(ISOLATION)
        self._cursor.execute(
            "SET SESSION " + ", ".join(f"{name} = %({name})s" for name in settings),
            settings,
        )
        self._cursor.execute("SELECT @@max_allowed_packet, @@global.read_only, @@global.innodb_read_only")
        self._largest: int
        self._largest, *settings_of_writes = self._cursor.fetchone()
        #: Does this server take no writes, as a replica that stands by? (super_read_only sets read_only, too.)
        self.read_only = any(str(each) not in ("0", "OFF") for each in settings_of_writes)

    @property
    def patience(self) -> float | None:
        patience: float | None = self._raw._read_timeout
        return patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._raw._read_timeout = self._raw._write_timeout = seconds

    @property
    def session(self) -> int | None:
        session: int = self._raw.thread_id()
        return session

    def answer(self, request: Request) -> Any:
        cursor = self._cursor
        statement = cursor.mogrify(*spelt(request, Style.PYFORMAT)).encode()
        if len(statement) + 1 >= self._largest:
            # The server would hang up in the middle of it, which looks like any lost connection.
            raise _error(
                ER.NET_PACKET_TOO_LARGE,
                f"a statement of {len(statement):,} bytes is more than the server takes "
                f"(max_allowed_packet = {self._largest:,})",
            )
        cursor.execute(statement)
        if isinstance(request, Fetch):
            return list(cursor.fetchall())
        return cursor.lastrowid if isinstance(request, Insert) else cursor.rowcount

    @property
    def commits_alone(self) -> bool:
        return not self._raw.server_status & SERVER_STATUS_IN_TRANS

    def begin(self, *, writes: bool = True) -> None:
        self._raw.begin()

    def commit(self) -> None:
        self._raw.commit()

    def rollback(self) -> None:
        self._raw.rollback()

    def prefer_indexes(self) -> None:
        """The statements say themselves which index to take."""

    def hear(self, timeout: float) -> list[str]:
        raise NotImplementedError("MySQL and MariaDB tell nobody anything")

    def unasked(self) -> bool:
        return not self._raw.open or readable(self._raw._sock.fileno())

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._raw.close()

    def trouble(self, error: BaseException) -> Trouble:
        return trouble(error) if self._raw.open else Trouble.LOST


def trouble(error: BaseException) -> Trouble:
    """Say what kind of trouble an error of PyMySQL's is, on a connection that is still open."""
    if not isinstance(error, pymysql.Error) or not error.args:
        return Trouble.OTHER
    return TROUBLES.get(error.args[0], Trouble.OTHER)
