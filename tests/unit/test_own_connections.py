"""dibs' own connections, as far as they need no server: SQLite's, what is refused, and what errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from dibs.bindings import OwnConnection, connector, own_psycopg, own_pymysql, own_sqlite3
from dibs.dialects.urls import DatabaseUrl, parse
from dibs.errors import ConfigurationError, DatabaseUnavailable, DibsError, UnsuitableDatabase
from dibs.ops import Execute, Fetch, Request
from dibs.troubles import Trouble


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a table that has one row."""
    path = tmp_path / "some.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO things (name) VALUES ('first')")
        connection.commit()
    return path


def names_in(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM things ORDER BY id")]


def open_file(path: Path, query: str = "") -> OwnConnection:
    return connector(parse(f"sqlite:///{path}{query}"))("test")


def test_own_file_is_durable_and_shared(tmp_path: Path) -> None:
    """A file is made if there is none, in WAL mode, synced at each commit unless the URL says otherwise."""
    own = open_file(tmp_path / "new.db")
    assert isinstance(own, OwnConnection)
    assert own.answer(Fetch("PRAGMA journal_mode", {})) == [("wal",)]
    assert own.answer(Fetch("PRAGMA synchronous", {})) == [(2,)]
    faster = open_file(tmp_path / "new.db", "?synchronous=normal&busy_timeout=70")
    assert faster.answer(Fetch("PRAGMA synchronous", {})) == [(1,)]
    own.close()
    own.close()
    faster.close()


def test_own_transactions(path: Path) -> None:
    """In autocommit until `begin`; then all or nothing. `rollback` is harmless where nothing was begun."""
    own = open_file(path)
    assert own.commits_alone
    own.rollback()
    assert own.answer(Execute("INSERT INTO things (name) VALUES ('kept')", {})) == 1
    own.begin()
    assert not own.commits_alone
    assert own.answer(Execute("WITH w AS (SELECT 1) UPDATE things SET name = 'gone'", {})) == 2
    own.rollback()
    own.begin(writes=False)
    assert own.answer(Fetch("SELECT name FROM things", {})) == [("first",), ("kept",)]
    own.commit()
    assert own.commits_alone
    assert names_in(path) == ["first", "kept"]
    own.close()


def test_own_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    """Only one can put a new file into WAL mode; the others wait for it, and none fails."""
    opened: list[OwnConnection] = []
    together = threading.Barrier(8)

    def open_one() -> None:
        together.wait()
        opened.append(open_file(tmp_path / "new.db"))

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    for own in opened:
        own.close()


def test_own_path_is_remembered_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that changes its directory goes on with the same file."""
    monkeypatch.chdir(tmp_path)
    connect = connector(parse("sqlite:///here.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    connect("test").close()
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("sqlite:///{tmp}/none/some.db", DatabaseUnavailable, "there is no directory"),
        ("sqlite:///{tmp}", DatabaseUnavailable, "unable to open"),
        ("sqlite:///{tmp}/text", UnsuitableDatabase, "not a database"),
        ("sqlite:///{tmp}/x.db?synchronous=off", ConfigurationError, "normal, full, extra"),
        ("sqlite:///{tmp}/x.db?busy_timeout=1s", ConfigurationError, "milliseconds"),
        ("sqlite:///{tmp}/x.db?mode=ro", ConfigurationError, "mode (known: synchronous, busy_timeout)"),
        ("postgresql://me:s3cret@localhost:1/shop", DatabaseUnavailable, "cannot connect to postgresql://me@localhost"),
        ("postgresql://me:s3cret@a/shop?sslmoed=1", ConfigurationError, 'parameter: "sslmoed"'),
        ("postgresql://me:s3cret@127.0.0.1/shop?sslmode=s3cret", DatabaseUnavailable, 'sslmode value: "***"'),
        ("mysql://me:s3cret@localhost:1/shop", DatabaseUnavailable, "cannot connect to mysql://me@localhost:1/shop"),
        ("mysql://me:s3cret@a,b:x/shop", ConfigurationError, "not a number"),
        ("mysql://me:s3cret@127.0.0.1:1,127.0.0.1:2/shop", DatabaseUnavailable, "127.0.0.1:1,127.0.0.1:2/shop: Can't"),
        ("mysql://me:s3cret@a/shop?charset=latin1", ConfigurationError, "utf8mb4"),
        ("mysql://me:s3cret@a/shop?read_timeout=soon", ConfigurationError, "number of seconds"),
        ("mysql://me:s3cret@a/shop?ssl_mode=maybe", ConfigurationError, "VERIFY_IDENTITY"),
        ("mysql://me:s3cret@a/shop?ssl_ca=/none", ConfigurationError, "cannot be read"),
        ("mariadb://me:s3cret@a/shop?sslmode=require", ConfigurationError, "sslmode (known: charset"),
    ],
)
def test_own_connection_that_cannot_be(tmp_path: Path, text: str, kind: type[DibsError], said: str) -> None:
    """What is wrong is said in a sentence, with the address and without the password."""
    (tmp_path / "text").write_text("not SQL, and long enough to be read as the header of a database file " * 20)
    with pytest.raises(kind) as caught:
        connector(parse(text.format(tmp=tmp_path)))("test")
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "module", "driver", "extra"),
    [("postgresql", "own_psycopg", "psycopg", "postgres"), ("mysql", "own_pymysql", "pymysql", "mysql")],
)
def test_missing_driver_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str, module: str, driver: str, extra: str
) -> None:
    """Without the driver the error says what to install; and nothing is asked of it before a connection is."""
    monkeypatch.delitem(sys.modules, f"dibs.bindings.{module}")
    monkeypatch.setitem(sys.modules, driver, None)
    connect = connector(DatabaseUrl(scheme))
    with pytest.raises(ConfigurationError, match=rf'pip install "dibs\[{extra}\]"'):
        connect("test")


def test_own_parameters_of_postgres() -> None:
    """The whole URL reaches libpq: several hosts, any parameter, and signs that had to be escaped."""
    url = parse("postgresql://m%40e:p%2F%3Aw@one:1,two:2/sh%20op?sslmode=require&options=-c%20work_mem%3D8MB")
    assert own_psycopg._parameters(url) == {
        "user": "m@e",
        "password": "p/:w",
        "host": "one,two",
        "port": "1,2",
        "dbname": "sh op",
        "sslmode": "require",
        "options": "-c work_mem=8MB",
    }


# -- troubles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        ("40001", Trouble.CONFLICT),
        ("40P01", Trouble.CONFLICT),
        ("55P03", Trouble.LOCKED),
        ("25006", Trouble.READ_ONLY),
        ("42P01", Trouble.NO_TABLE),
        ("42501", Trouble.DENIED),
        ("57P01", Trouble.LOST),
        ("08006", Trouble.LOST),
        ("53100", Trouble.FULL),
        ("23505", Trouble.OTHER),
        ("42601", Trouble.OTHER),
    ],
)
def test_troubles_of_postgres(code: str, trouble: Trouble) -> None:
    """What follows from an error is told by its SQLSTATE, or by its class where the whole class means the same."""
    assert own_psycopg.trouble(psycopg.errors.lookup(code)("said")) is trouble


def test_troubles_of_postgres_without_a_code() -> None:
    """What libpq finds out by itself has no code: it is a lost connection. A plan that is out of date is as good."""
    assert own_psycopg.trouble(psycopg.OperationalError("consuming input failed")) is Trouble.LOST
    assert own_psycopg.trouble(psycopg.DataError("text fields cannot contain NUL")) is Trouble.OTHER
    assert own_psycopg.trouble(ValueError("ours")) is Trouble.OTHER
    stale = psycopg.errors.FeatureNotSupported("cached plan must not change result type")
    assert own_psycopg.trouble(stale) is Trouble.LOST


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (1213, Trouble.CONFLICT),
        (1020, Trouble.CONFLICT),
        (1205, Trouble.LOCKED),
        (3572, Trouble.LOCKED),
        (1290, Trouble.READ_ONLY),
        (1792, Trouble.READ_ONLY),
        (1665, Trouble.UNSUITABLE),
        (1146, Trouble.NO_TABLE),
        (1054, Trouble.NO_TABLE),
        (1142, Trouble.DENIED),
        (2006, Trouble.LOST),
        (2013, Trouble.LOST),
        (4031, Trouble.LOST),
        (1153, Trouble.OTHER),
        (1062, Trouble.OTHER),
    ],
)
def test_troubles_of_mysql(code: int, trouble: Trouble) -> None:
    """What follows from an error is told by its number. A statement that is too long is tried once only."""
    error: Any = pymysql.OperationalError
    assert own_pymysql.trouble(error(code, "said")) is trouble


def test_troubles_of_sqlite(path: Path) -> None:
    """What follows from an error is told by its code, and where the code is the general one by its text."""

    def trouble_of(own: OwnConnection, request: Request) -> Trouble:
        with pytest.raises(sqlite3.Error) as caught:
            own.answer(request)
        return own.trouble(caught.value)

    one, two = open_file(path), open_file(path, "?busy_timeout=1")
    assert trouble_of(one, Fetch("SELECT 1 FROM missing", {})) is Trouble.NO_TABLE
    assert trouble_of(one, Fetch("SELECT missing FROM things", {})) is Trouble.NO_TABLE
    assert trouble_of(one, Execute("INSERT INTO things (missing) VALUES (1)", {})) is Trouble.NO_TABLE
    assert trouble_of(one, Execute("INSERT INTO things (id) VALUES (1)", {})) is Trouble.OTHER
    two.begin(writes=False)
    two.answer(Fetch("SELECT 1 FROM things", {}))
    one.begin()
    one.answer(Execute("DELETE FROM things", {}))
    assert trouble_of(two, Execute("DELETE FROM things", {})) is Trouble.LOCKED
    one.commit()
    assert trouble_of(two, Execute("DELETE FROM things", {})) is Trouble.CONFLICT
    two.answer(Execute("PRAGMA query_only = ON", {}))
    assert trouble_of(two, Execute("DELETE FROM things", {})) is Trouble.READ_ONLY
    one.close()
    assert trouble_of(one, Fetch("SELECT 1", {})) is Trouble.LOST
    assert own_sqlite3.trouble(ValueError("ours")) is Trouble.OTHER
    two.close()
