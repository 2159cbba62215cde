"""The schema: numbered files, one folder per kind of database, applied in order and recorded in `dibs_meta`.

A running older worker must survive a newer schema: a migration only adds, and raises `oldest_code` only when it
really must. `dibs migrate --sql` prints the same files for whoever may change the database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from typing import TYPE_CHECKING

from dibs import ops
from dibs.bindings.binding import Binding, OwnConnection
from dibs.errors import CodeTooOld, SchemaError
from dibs.ops import Execute, Op, fetch
from dibs.troubles import Trouble

if TYPE_CHECKING:
    from dibs.dialects.dialect import Dialect

#: The newest schema that this code knows, and the oldest that it can work on.
SCHEMA = 3
OLDEST_SCHEMA = 2

#: How often a migration is begun anew because a table was in use, and the pause (seconds) in which those get on who waited
#: behind it. Ten minutes and more in all.
TRIES = 300
PAUSE = 1.5

META = "SELECT name, value FROM dibs_meta"


def files(dialect: Dialect) -> list[tuple[int, str, str]]:
    """Return the migrations of a dialect in order: number, name, SQL with its tables qualified."""
    folder = resources.files(__package__).joinpath(dialect.migrations)
    found = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            # The names of indexes share the schema with those of other queues there.
            text = entry.read_text(encoding="utf-8").replace("INDEX dibs_", f"INDEX {dialect.prefix}dibs_")
            # As text, for a look into the catalogue.
            text = text.replace("{schema}", _text(dialect.schema)).replace(
                "{jobs}", _text(f"{dialect.prefix}dibs_jobs")
            )
            found.append((int(number), name, dialect.qualify(text)))
    return found


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def version(dialect: Dialect, connection: Binding) -> tuple[int, int]:
    """Return the schema's number and the oldest code that may work on it; (0, 0) where there are no tables."""
    return ops.run(recorded(dialect), connection) if ops.run(dialect.has_tables(), connection) else (0, 0)


def recorded(dialect: Dialect) -> Op[tuple[int, int]]:
    """Return what the tables, which must be there, say of themselves: their number, and the oldest code for them."""
    meta: dict[str, str] = dict((yield from fetch(dialect.qualify(META), alone=True)))
    return int(meta.get("schema", 0)), int(meta.get("oldest_code", 0))


def require(dialect: Dialect, connection: OwnConnection) -> None:
    """Raise SchemaError unless this code can work on the tables; embedded databases are migrated instead."""
    schema, oldest_code = version(dialect, connection)
    if schema < SCHEMA and dialect.migrates_itself:
        migrate(dialect, connection)
        return
    if schema == 0:
        _look(dialect, connection)
    refuse(dialect, schema, oldest_code)


def _look(dialect: Dialect, connection: OwnConnection) -> None:
    """Raise what the database says if the tables only seem missing, because this account may not see them."""
    try:
        ops.run(recorded(dialect), connection)
    except Exception as error:
        if connection.trouble(error) is not Trouble.NO_TABLE:
            raise


def refuse(dialect: Dialect, schema: int, oldest_code: int) -> None:
    """Raise SchemaError, or CodeTooOld, unless this code can work on tables that say this of themselves.

    That they are newer is no reason: a rolling deploy runs old workers on the new tables. That they say so is.
    """
    where = f"in {dialect.name}, schema {dialect.schema!r}"
    if schema == 0:
        raise SchemaError(f"the tables of dibs are missing {where}: run `dibs migrate`")
    if schema < OLDEST_SCHEMA:
        raise SchemaError(
            f"the tables of dibs are at version {schema} {where}, this code needs {SCHEMA}: run `dibs migrate`"
        )
    if oldest_code > SCHEMA:
        raise CodeTooOld(
            f"the tables of dibs are at version {schema} {where} and need code that knows at least {oldest_code}; "
            f"this code knows {SCHEMA}: install a newer dibs"
        )


def pending(dialect: Dialect, connection: OwnConnection) -> list[tuple[int, str, str]]:
    """Return the migrations that are still to be applied."""
    schema, _ = version(dialect, connection)
    return [entry for entry in files(dialect) if entry[0] > schema]


def migrate(
    dialect: Dialect, connection: OwnConnection, *, another: Callable[[], OwnConnection] | None = None
) -> list[str]:
    """Apply what is pending, one migration a transaction; return the names. Two at once wait for each other. `another`
    opens a second connection, from which the first is kept from waiting long.

    Where the database commits at each statement of DDL, a migration that was killed is run again from its start.
    """
    applied = []
    connection.patience = None  # an index on a large table takes its time
    for number, name, text in pending(dialect, connection):
        for attempt in range(1, TRIES + 1):
            try:
                with _hurried(dialect, connection, another if attempt < TRIES else None):
                    ours = _apply(dialect, connection, number, text)
                if ours:
                    applied.append(f"{number:04} {name}")
                break
            except Exception as error:
                if connection.trouble(error) is not Trouble.LOCKED or attempt == TRIES:
                    raise
                time.sleep(PAUSE)
    return applied


@contextmanager
def _hurried(
    dialect: Dialect, connection: OwnConnection, another: Callable[[], OwnConnection] | None
) -> Iterator[None]:
    """Have what waits on this connection for a table give up soon, where that must be said on another one."""
    if another is None or dialect.longest_wait is None:
        yield
        return
    session, longest, ended = ops.run(dialect.session(), connection), dialect.longest_wait, threading.Event()

    def watch() -> None:
        with suppress(Exception):  # without it the server ends such a wait, a little later
            watching, waited = another(), False
            try:
                while not ended.wait(longest / 2):
                    waits = ops.run(dialect.waits_for_table(session), watching)
                    if waits and waited:  # seen twice: not for a transaction of a moment
                        ops.run(dialect.stop_waiting(session), watching)
                    waited = waits
            finally:
                watching.close()

    watcher = threading.Thread(target=watch, name="dibs-migrate", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _apply(dialect: Dialect, connection: OwnConnection, number: int, text: str) -> bool:
    """Apply one migration; return False where somebody else was faster. Waits for no lock for long: whoever waits to
    change a table keeps everybody else from it, claims too, as long as one transaction that has used it is open."""
    connection.begin()
    try:
        ops.run(dialect.lock_migrations(), connection)
        ours = version(dialect, connection)[0] < number
        for statement in [*dialect.hurry, *dialect.make_room(), *statements(text)] if ours else []:
            connection.answer(Execute(statement, {}))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        ops.run(dialect.unlock_migrations(), connection)
    return ours


def statements(text: str) -> list[str]:
    """Take a file of SQL apart: a statement ends with a semicolon at the end of a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).replace(";\n", ";\0").split("\0") if part.strip(" \n;")]
