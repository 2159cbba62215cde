"""Which databases there are, by the names and versions that people ask for."""

from __future__ import annotations

from collections.abc import Callable

from servers.engine import Engine
from servers.errors import Unavailable
from servers.mariadb import SUITES, MariaDB
from servers.mysql import MySQL
from servers.pgbouncer import SUITES as POOLER_SUITES
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgreSQL
from servers.postgres_sources import MAJORS

ENGINES: dict[str, Callable[[str], Engine]] = {
    "postgres": PostgreSQL,
    "mysql": MySQL,
    "mariadb": MariaDB,
    "pgbouncer": PgBouncer,
}
TITLES = {
    "postgres": PostgreSQL.title,
    "mysql": MySQL.title,
    "mariadb": MariaDB.title,
    "pgbouncer": PgBouncer.title,
}
#: What stands before a server of another kind, and before which.
BEFORE = {"pgbouncer": "postgres"}
#: Every version that can be asked for, oldest first.
VERSIONS: dict[str, tuple[str, ...]] = {
    "postgres": MAJORS,
    "mysql": ("9.7",),
    "mariadb": tuple(SUITES),
    "pgbouncer": tuple(POOLER_SUITES),
}
DEFAULTS = {"postgres": "18", "mysql": "9.7", "mariadb": "10.11", "pgbouncer": "1.24"}


def engine(kind: str, version: str | None = None) -> Engine:
    """Return the programs of a database, fetched unless they are here; raise Unavailable without any."""
    if kind not in ENGINES:
        raise Unavailable(f"no such database: {kind} ({', '.join(ENGINES)})")
    return ENGINES[kind](version or DEFAULTS[kind])
