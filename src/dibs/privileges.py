"""Which privileges an account lacks, found out by asking the database about each. Changes nothing there.

A database that refuses a statement names the table at best. Whoever is to grant something needs to know what, and what
the next statement would lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dibs.bindings.binding import OwnConnection
from dibs.dialects.dialect import Dialect
from dibs.dialects.spelling import JOB_IDS, SCHEMA, TABLES
from dibs.errors import MissingPrivilege
from dibs.ops import Fetch
from dibs.troubles import Trouble

#: A privilege, and what it is on: a table without its prefix, SCHEMA, or JOB_IDS.
Privilege = tuple[str, str]

#: What a worker can't do without, on every database. It is looked for at the start: some of it is first needed
#: minutes later.
WORKER: dict[str, tuple[str, ...]] = {
    "dibs_jobs": ("SELECT", "UPDATE", "DELETE"),
    "dibs_keys": ("SELECT", "DELETE"),
    "dibs_loose_keys": ("SELECT",),
    "dibs_duplicates": ("SELECT", "INSERT", "DELETE"),
    "dibs_queues": ("SELECT",),
    "dibs_chores": ("SELECT", "UPDATE"),
    "dibs_meta": ("SELECT",),
}

#: What making tables takes, where it is asked about as a whole.
TO_MIGRATE: list[Privilege] = [("USAGE", SCHEMA), ("CREATE", SCHEMA)]

LOCKED = ("dibs_keys", "dibs_loose_keys", "dibs_duplicates")

_WRITES = {"INSERT": r"\bINTO {}", "UPDATE": r"\bUPDATE {}", "DELETE": r"\bDELETE FROM {}"}
_READS = re.compile(r"RETURNING|ON CONFLICT|ON DUPLICATE")
_LOCKS = re.compile(r"FOR (?:NO KEY )?UPDATE")


def needed_by_worker(dialect: Dialect) -> list[Privilege]:
    needed = [("USAGE", SCHEMA), *((each, table) for table, several in WORKER.items() for each in several)]
    needed += [(dialect.locking(table), table) for table in ("dibs_loose_keys", "dibs_duplicates")]
    if dialect.frees_keys_later:
        needed += [(dialect.locking("dibs_keys"), "dibs_keys")]
        needed += [(each, "dibs_loose_keys") for each in ("INSERT", "DELETE")]
    return list(dict.fromkeys(needed))


def needed_for(dialect: Dialect, sql: str) -> list[Privilege]:
    """Return what a statement, as it is sent, takes: what it writes first, since that is less often granted."""
    text = " ".join(sql.split())
    tables = {table: dialect.qualify(table) for table in TABLES}
    read = [table for table, name in tables.items() if re.search(rf"{re.escape(name)}\b", text)]
    written = [
        (verb, table)
        for table in read
        for verb, form in _WRITES.items()
        if re.search(rf"\b{form.format(re.escape(tables[table]))}\b", text)
    ]
    only_read = [table for table in ("dibs_jobs", *LOCKED) if table in read and table not in {on for _, on in written}]
    locked = [(dialect.locking(table), table) for table in only_read] if _LOCKS.search(text) else []
    ids = [("USAGE", JOB_IDS)] if "nextval(" in text else []
    # What is only appended to is not read.
    appended = (
        set()
        if _READS.search(text)
        else {table for table in read if text.count(tables[table]) == text.count(f"INTO {tables[table]}")}
    )
    selected = [("SELECT", table) for table in read if table not in appended]
    return list(dict.fromkeys([("USAGE", SCHEMA), *ids, *written, *locked, *selected]))


def missing(dialect: Dialect, connection: OwnConnection, needed: Iterable[Privilege]) -> list[Privilege]:
    """Return which of these privileges the account of this connection, which is in no transaction, does not have."""
    return [each for each in needed if not _has(dialect, connection, each)]


def error_for(
    dialect: Dialect, connection: OwnConnection, lacking: list[Privilege], said: str = ""
) -> MissingPrivilege:
    """Return the error that names what is missing, and the statements that grant it."""
    account: str = connection.answer(Fetch(dialect.ACCOUNT, {}))[0][0]
    grants = [dialect.grant(privilege, on, account) for privilege, on in lacking]
    return MissingPrivilege(account, grants, said)


def require(dialect: Dialect, connection: OwnConnection, needed: Iterable[Privilege]) -> None:
    """Raise MissingPrivilege unless the account of this connection has all of these privileges."""
    if lacking := missing(dialect, connection, needed):
        raise error_for(dialect, connection, lacking)


def _has(dialect: Dialect, connection: OwnConnection, privilege: Privilege) -> bool:
    """Ask about one privilege: where it is missing the question is answered with no row, or is itself refused."""
    question = dialect.may(*privilege)
    if question is None:
        return True
    try:
        return bool(connection.answer(question))
    except Exception as error:
        if connection.trouble(error) is not Trouble.DENIED:
            raise
        return False
