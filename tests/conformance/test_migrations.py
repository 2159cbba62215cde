"""The schema: made by migrations, checked by whoever opens a connection, and said plainly when it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conformance.connections.kind import Kind, done
from conformance.connections.pairs import on_each
from conformance.faults import Failing, Fault
from conformance.test_keys_at_once import at_once
from conftest import wait_for
from databases import Database, new_database
from dibs import Dibs, migrations
from dibs.errors import CodeTooOld, DatabaseUnavailable, SchemaError, UnsuitableDatabase
from dibs.jobs import JobRecord, Lane, NewJob, Settled, Verdict, Wanted
from dibs.ops import Execute
from dibs.states import State
from dibs.worker import register

ALL = ["0001 initial", "0002 cancel_reason", "0003 workers"]


def migrate(database: Database) -> list[str]:
    app = database.app()
    connection = app.store.open()
    try:
        return migrations.migrate(app.dialect, connection)
    finally:
        connection.close()


def works(database: Database) -> bool:
    """Can a job be enqueued, claimed and counted?"""
    app = database.app()
    task = app.task(name="t", queue="q")(lambda: None)
    created = task.using(key="k").enqueue().created
    counted = app.counts()
    app.close()
    return created and counted == {"q": {"ready": 1}}


def asks(app: Dibs) -> list[Callable[[], object]]:
    """Return calls that all need the tables."""
    task = app.task(name="t", queue="q")(lambda: None)
    return [
        task.enqueue,
        task.using(key="k").enqueue,
        lambda: app.enqueue_many([task.call()]),
        lambda: app.job(1),
        app.counts,
        lambda: app.cancel([1]),
        lambda: app.requeue([1]),
        lambda: app.pause("q"),
        app.prune,
        app.worker(burst=True).run,
    ]


def meta(database: Database, **values: int) -> None:
    for name, value in values.items():
        database.execute("UPDATE dibs_meta SET value = :value WHERE name = :name", name=name, value=str(value))


def test_migrate_makes_the_tables_once(bare: Database) -> None:
    """What was applied is named; asked again there is nothing to apply, and what is there stays."""
    assert migrate(bare) == ALL
    assert works(bare)
    assert migrate(bare) == []
    assert bare.app().counts() == {"q": {"ready": 1}}


def test_two_that_migrate_at_once(bare: Database) -> None:
    """They wait for each other: each migration is applied by one of them."""
    applied = at_once(*[lambda: migrate(bare)] * 3)
    assert sorted(name for names in applied for name in names) == ALL  # type: ignore[attr-defined]
    assert works(bare)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_migration_that_breaks_off(bare: Database, when: str) -> None:
    """Again and again, each time one statement later: begun anew it comes to its end."""
    app = bare.app()
    for at in count(1):
        fault = Fault(bare, at, when=when, how="cut")
        connection = Failing(app.store.open(), bare, fault)
        fault.arm()
        try:
            migrations.migrate(app.dialect, connection)
        except Exception as error:
            assert fault.struck, error
        finally:
            connection.close()
        if not fault.struck:
            break
    assert migrate(bare) == []
    assert works(bare)


def test_the_printed_sql_makes_the_same_tables(bare: Database) -> None:
    """What `dibs migrate --sql` prints can be run, statement by statement, by whoever may change the database."""
    app = bare.app()
    connection = app.store.open()
    for _, _, text in migrations.files(app.dialect):
        for statement in migrations.statements(text):
            connection.answer(Execute(statement, {}))
    connection.close()
    assert works(bare)
    assert migrate(bare) == []


def test_missing_tables(bare: Database) -> None:
    """Whatever is asked: SchemaError, and it names the command. An embedded database makes its tables by itself."""
    for number, ask in enumerate(asks(bare.app())):
        if bare.app().dialect.migrates_itself:
            assert works(Database(bare.name, bare.url.replace("bare", f"bare{number}")))
            continue
        with pytest.raises(SchemaError, match=r"missing.*run `dibs migrate`"):
            ask()


def test_tables_that_are_too_old(bare: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """For code that needs newer ones: it says which version is there and which is needed."""
    migrate(bare)
    monkeypatch.setattr(migrations, "SCHEMA", 5)
    monkeypatch.setattr(migrations, "OLDEST_SCHEMA", 4)
    if bare.app().dialect.migrates_itself:
        pytest.skip("it is migrated instead")
    for ask in asks(bare.app()):
        with pytest.raises(SchemaError, match=r"at version 3 .*needs 5.*run `dibs migrate`"):
            ask()


def test_new_code_on_older_tables(bare: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling deploy: code that knows a newer schema, and can do without it, works."""
    migrate(bare)
    monkeypatch.setattr(migrations, "SCHEMA", 4)
    assert works(bare)


def test_old_code_on_newer_tables(bare: Database) -> None:
    """A rolling deploy: a running older worker survives a newer schema."""
    migrate(bare)
    meta(bare, schema=7)
    assert works(bare)
    assert migrate(bare) == []


def test_migrating_under_a_running_worker_of_the_version_before(bare: Database) -> None:
    """Its connections, with the statements that are prepared on them, and its claims go on."""
    app = bare.app()
    connection = app.store.open()
    ((_, _, text), *_) = migrations.files(app.dialect)
    for statement in migrations.statements(text):
        connection.answer(Execute(statement, {}))
    task = app.task(name="t", queue="q")(lambda: None)
    app.store._prepare = False  # it found these tables good when it started
    job = task.enqueue()
    lane = {"since": None, "tasks": app.dialect.names(["t"]), "worker": "older", "lease": 60.0, "start": 9, "limit": 9}
    (claim,) = app.store.run(lambda: app.dialect.claim(Wanted(Lane("q", 0), **lane)))  # type: ignore[arg-type]
    assert migrate(bare) == ALL[1:]
    assert app.store.run(lambda: app.dialect.renew([(claim.id, claim.claims)], worker="older", lease=60.0)).renewed
    verdict = Verdict(id=claim.id, claims=claim.claims, status=State.DONE, attempts=1, keep=60.0)
    assert app.store.run(lambda: app.dialect.settle([verdict], worker="older")) == {job.id: Settled.NOW}
    connection.close()
    app.close()


def test_tables_that_declare_the_code_too_old(bare: Database) -> None:
    """Where the newer schema really can't be worked on any more, it says so itself."""
    migrate(bare)
    meta(bare, schema=7, oldest_code=5)
    for ask in asks(bare.app()):
        with pytest.raises(CodeTooOld, match=r"at least 5.*knows 3.*newer dibs"):
            ask()


@pytest.mark.parametrize("prefix", ["", "billing_"])
def test_a_table_without_row_locks(bare: Database, prefix: str) -> None:
    """Where an engine has none, it is refused with the statement that cures it; whatever the tables' names begin with,
    and whatever other queues' tables are in."""
    if bare.kind != "mysql":
        pytest.skip("it has one engine")
    app, other = bare.app(prefix=prefix), bare.app(prefix="other_")
    app.migrate()
    other.migrate()
    bare.execute("ALTER TABLE other_dibs_queues ENGINE = MyISAM")
    assert app.counts() == {}
    bare.execute(f"ALTER TABLE {prefix}dibs_queues ENGINE = MyISAM")
    app.close()
    with pytest.raises(UnsuitableDatabase, match=f"ALTER TABLE {prefix}dibs_queues ENGINE = InnoDB"):
        app.counts()


def test_tables_that_were_dropped_meanwhile(bare: Database) -> None:
    """A connection that had found them: the database's own error becomes the same advice."""
    migrate(bare)
    app = bare.app()
    assert app.counts() == {}
    bare.execute("DROP TABLE dibs_jobs")
    with pytest.raises(SchemaError, match="dibs migrate"):
        app.counts()
    app.close()


def test_an_embedded_database_is_made_by_two_at_once(tmp_path: Path) -> None:
    """The first enqueues of several threads, or processes, on a file that is not there yet."""
    url = f"sqlite:///{tmp_path / 'new.db'}"

    def enqueue() -> list[Any]:
        app = Dibs(url)
        task = app.task(name="t")(lambda: None)
        return [task.enqueue().created, app.close()]  # type: ignore[func-returns-value]

    assert at_once(*[enqueue] * 6) == [[True, None]] * 6
    assert Dibs(url).counts() == {"default": {"ready": 6}}


def test_an_embedded_database_in_no_directory(tmp_path: Path) -> None:
    """A directory is not made for it: a typing error would go unnoticed."""
    with pytest.raises(DatabaseUnavailable, match="no directory"):
        Dibs(f"sqlite:///{tmp_path / 'nowhere' / 'new.db'}").counts()


@on_each(lambda kind: kind.name in ("psycopg", "PyMySQL", "sqlite3", "asyncpg") or "connection" in kind.name)
def test_missing_tables_on_a_users_connection(kind: Kind, db: Database, tmp_path: Path) -> None:
    """The driver's own error comes through, as in any statement of theirs, with a note that names the command."""
    app = Dibs(db.url)
    task = app.task(name="t")(lambda: None)

    async def scenario(database: Database) -> None:
        async with kind.open(database) as user:
            await done(user.begin())
            try:
                await user.enqueue(task.using(connection=user.connection))
            except Exception as error:
                assert any("dibs migrate" in note for note in error.__notes__)
            else:
                pytest.fail("there are no tables")

    if db.kind == "sqlite":
        kind.run(scenario(Database(db.name, f"sqlite:///{tmp_path / 'empty.db'}")))
        return
    with new_database(db.name) as url:
        app.__dict__["dialect"] = Dibs(url).dialect
        kind.run(scenario(Database(db.name, url)))


def test_every_dialect_has_the_same_columns(db: Database) -> None:
    """A job looks the same wherever it is kept."""
    if db.kind == "sqlite":
        rows = db.fetch("SELECT name FROM pragma_table_info('dibs_jobs')")
    else:
        rows = db.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'dibs_jobs' "
            "AND table_schema = :schema",
            schema=db.app().dialect.schema,
        )
    columns = {row[0] for row in rows}
    assert columns == set(JobRecord.__struct_fields__) - {"duplicates"}
    assert set(NewJob.__struct_fields__) - {"delay"} <= columns


def test_workers_on_tables_without_a_register(
    bare: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling deploy, with the tables of the version before: a worker of this one works, says once that it is in no
    register, and nobody who asks for the workers is told wrong."""
    app = bare.app()
    if app.dialect.migrates_itself:
        pytest.skip("it is migrated instead")
    connection = app.store.open()
    for number, _, text in migrations.files(app.dialect):
        if number < 3:
            for statement in migrations.statements(text):
                connection.answer(Execute(statement, {}))
    task = app.task(name="t", queue="q")(lambda: None)
    monkeypatch.setattr(register, "FIRST_REST", 0.5)
    with app.worker(lease=1.0) as worker:
        job = task.enqueue()
        job.join(timeout=10)
        wait_for(lambda: "this worker's row in dibs_workers can't be written" in caplog.text, what="it to be said")
        with pytest.raises(SchemaError, match="dibs migrate"):
            app.workers()
        assert migrate(bare) == ["0003 workers"]
        registered = wait_for(app.workers, what="the worker to register after all")
        assert [each.worker for each in registered] == [worker.name]
    assert app.workers() == []
    assert caplog.text.count("can't be written") == 1
    connection.close()
    app.close()
