"""A place in the database for `dibs bench` or `dibs verify` alone: made, held, and removed again, also after a run that
was killed.

On a server these are tables with a prefix that nobody else has, beside the user's; where the database is a file, a
folder with another file beside it, on the same disk. A run holds a lock as long as it lives. What is found without
its lock being held was left over by a run that was killed, and is removed.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec

from dibs import ops
from dibs.app import Dibs
from dibs.bindings.binding import OwnConnection
from dibs.dialects import DatabaseUrl
from dibs.dialects.bench import measuring
from dibs.dialects.bench.measuring import SCRATCH
from dibs.errors import DatabaseUnavailable
from dibs.troubles import Trouble

#: How often (seconds) the connection that holds the lock says something, so that no server takes it for idle.
ALIVE_EVERY = 30.0

#: How often it is tried again to remove tables that are locked; each try waits for some seconds itself.
DROPS = 3


class Place(msgspec.Struct, frozen=True):
    """Where the tables are; enough for another process to work there."""

    url: DatabaseUrl
    schema: str
    prefix: str

    def app(self) -> Dibs:
        """Return an app on these tables."""
        return Dibs(lambda: self.url, schema=self.schema, prefix=self.prefix)


@contextmanager
def scratch(app: Dibs, say: Callable[[str], None]) -> Iterator[Place]:
    """Yield a place that is there as long as the block; whatever ends the block, it is removed."""
    file = app.url.file
    made = _tables(app, say) if file is None else _folder(app, file, say)
    with made as place:
        yield place


def _url_with_password(app: Dibs) -> DatabaseUrl:
    """Return the URL as another process needs it: with the password of this moment, where the app asks for one."""
    return replace(app.url, password=app.password()) if app.password is not None else app.url


# -- tables ----------------------------------------------------------------------------------------


@contextmanager
def _tables(app: Dibs, say: Callable[[str], None]) -> Iterator[Place]:
    url = _url_with_password(app)
    prefix = f"{SCRATCH}{secrets.token_hex(4)}_"
    place = Place(url, app.dialect.schema, prefix)
    work = place.app()
    held = _Held(work, prefix)
    try:
        _remove_leftovers(work, say)
        try:
            yield place
        finally:
            _drop(work, prefix)
    finally:
        held.close()
        work.close()


def _remove_leftovers(app: Dibs, say: Callable[[str], None]) -> None:
    connection, holder = app.store.open(), app.store.open()
    try:
        here = measuring(app.dialect)
        for prefix, tables in ops.run(here.tables(), connection).items():
            holder.rollback()
            holder.begin()
            if not ops.run(here.hold(prefix), holder):
                continue
            try:
                ops.run(here.drop(tables), connection)
            except Exception as error:
                if connection.trouble(error) not in (Trouble.LOCKED, Trouble.DENIED):
                    raise
                say(f"the tables {prefix}…, which a run that was killed has left over, can't be removed now: {error}")
            else:
                say(f"removed the tables {prefix}…, which a run that was killed has left over")
    finally:
        holder.close()
        connection.close()


def _drop(app: Dibs, prefix: str) -> None:
    """Remove our tables. Sessions of processes that were just killed may still hold them for a moment."""
    here = measuring(app.dialect)
    for last in (False,) * DROPS + (True,):
        connection = app.store.open()
        try:
            tables = ops.run(here.tables(), connection).get(prefix, [])
            ops.run(here.drop(tables), connection)
            return
        except Exception as error:
            if last or connection.trouble(error) not in (Trouble.LOCKED, Trouble.CONFLICT):
                raise
        finally:
            connection.close()


class _Held:
    """A lock under the prefix's name, in a transaction that stays open: a pooler would lend the session to others."""

    def __init__(self, app: Dibs, prefix: str) -> None:
        self._connection: OwnConnection = app.store.open()
        self._measured = measuring(app.dialect)
        self._over = threading.Event()
        try:
            self._connection.begin()
            if not ops.run(self._measured.hold(prefix), self._connection):
                raise DatabaseUnavailable(f"the lock for the tables {prefix}… was not to be had")
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._stay, name="dibs-bench-lock", daemon=True)
        self._thread.start()

    def _stay(self) -> None:
        while not self._over.wait(ALIVE_EVERY):
            try:
                ops.run(self._measured.round_trip(), self._connection)
            except Exception:  # noqa: BLE001 - the lock is gone; what is measured says what is wrong with the server
                return

    def close(self) -> None:
        self._over.set()
        self._thread.join(5)
        self._connection.close()


# -- a folder --------------------------------------------------------------------------------------


@contextmanager
def _folder(app: Dibs, file: Path, say: Callable[[str], None]) -> Iterator[Place]:
    file = file.absolute()
    if not file.parent.is_dir():
        raise DatabaseUnavailable(f"cannot open {app.url}: there is no directory {file.parent}")
    beginning = f"{file.name}-bench-"
    for old in file.parent.glob(f"{_literal(beginning)}????????"):
        _remove_if_left_over(old, say)
    folder = file.parent / f"{beginning}{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise DatabaseUnavailable(f"the folder {folder} can't be made beside the database: {error}") from error
    try:
        with _lock_of(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Place(replace(_url_with_password(app), database=str(folder / "bench.db")), app.dialect.schema, "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path) -> IO[str]:
    """Open the file that is locked while a run lives; not the database, whose own locks closing it would let go."""
    return (folder / "made-by-dibs-bench").open("a")


def _remove_if_left_over(folder: Path, say: Callable[[str], None]) -> None:
    if not (folder / "made-by-dibs-bench").exists():
        return  # somebody else's
    with _lock_of(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder, ignore_errors=True)
    say(f"removed {folder}, which a run that was killed has left over")


def _literal(name: str) -> str:
    """Return a name for a glob that matches only itself."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in name)
