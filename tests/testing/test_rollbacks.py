"""A job that a rollback took away is logged: its task and its id, never its arguments."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from databases import Database
from dibs import Dibs
from testing.conftest import ASYNC_DRIVERS, sqlalchemy_url


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="dibs")
    return caplog


def send_to(app: Dibs) -> list[str]:
    """Register the task `send`; the list is what a test compares the log with."""

    def send(secret: str) -> None: ...

    app.task(name="send")(send)
    return []


def gone(*ids: int) -> str:
    what = "rolled back with the transaction that enqueued it"
    if len(ids) == 1:
        return f"job {ids[0]}: send: {what}"
    return f"{len(ids)} jobs of send ({', '.join(map(str, ids))}): {what}"


def test_sessions_and_connections(db: Database, engine: sqlalchemy.Engine, lines: pytest.LogCaptureFixture) -> None:
    """Of a transaction and of a savepoint that are rolled back; of what was committed or released, nothing."""
    app = db.app()
    send_to(app)
    send = app.tasks["send"]
    with Session(engine) as session:
        using = send.using(connection=session)
        kept = using.enqueue("hunter2")
        session.commit()
        first = using.enqueue("hunter2")
        with suppress(LookupError), session.begin_nested():
            undone = using.enqueue("hunter2")
            with session.begin_nested():
                released = using.enqueue("hunter2")
            raise LookupError
        assert lines.messages[-1:] == [gone(undone.id, released.id)]
        with session.begin_nested():
            second = using.enqueue("hunter2")
        session.rollback()
        assert lines.messages[-1:] == [gone(first.id, second.id)]
        using.enqueue("hunter2")
    assert "send: rolled back" in lines.messages[-1]  # closed without a commit
    with suppress(LookupError), engine.begin() as connection:
        last = app.enqueue_many([send.call("hunter2")], connection=connection)
        raise LookupError
    assert lines.messages[-1] == gone(last[0].id)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        send.using(connection=connection).enqueue("hunter2")
    assert len(lines.messages) == 4
    assert not [message for message in lines.messages if "hunter2" in message]
    assert app.job(kept.id).status == "ready"
    app.close()


def test_async_sessions(db: Database, lines: pytest.LogCaptureFixture) -> None:
    """The same of an async session."""
    app = db.app()
    send_to(app)

    async def main() -> int:
        engine = create_async_engine(sqlalchemy_url(db, ASYNC_DRIVERS))
        async with AsyncSession(engine) as session:
            job = await app.tasks["send"].using(connection=session).aenqueue("hunter2")
            await session.rollback()
        await engine.dispose()
        return job.id

    job_id = asyncio.run(main())
    assert lines.messages == [gone(job_id)]


def test_a_block_that_ends_with_an_exception(db: Database, lines: pytest.LogCaptureFixture) -> None:
    """Where the connection does not tell of a rollback, an `app.transaction` block that fails says what may be gone."""
    if db.kind != "postgres":
        pytest.skip("about connections that do not tell; one kind of them will do")
    import psycopg

    app = db.app()
    send_to(app)
    send = app.tasks["send"]
    with psycopg.connect(db.url) as connection:
        with app.transaction(connection):
            send.enqueue("hunter2")
        assert lines.messages == []
        with suppress(LookupError), connection.transaction(), app.transaction(connection):
            job = send.enqueue("hunter2")
            raise LookupError
    assert lines.messages == [f"job {job.id}: send: gone if the transaction that ends with LookupError is rolled back"]


DJANGO = """
import logging, sys
import django
django.setup()
from django.core.management import call_command
from django.db import transaction
from dibs.contrib.django import app
from shop.tasks import send_receipt

call_command("migrate", verbosity=0)
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
with transaction.atomic():
    send_receipt.enqueue(1)
    try:
        with transaction.atomic():
            send_receipt.enqueue(2)
            raise LookupError
    except LookupError:
        print("inner")
try:
    with transaction.atomic():
        send_receipt.enqueue(3)
        raise LookupError
except LookupError:
    print("outer")
print(len(app.jobs()))
"""


def test_django(tmp_path: Path, db: Database) -> None:
    """Of Django's blocks, also of those inside of others."""
    if db.kind != "sqlite":
        pytest.skip("Django tells the same of each database")
    project = Path(__file__).parents[1] / "contrib" / "django" / "project"
    environment = {
        **os.environ,
        "DIBS_DJANGO_URL": f"sqlite:///{tmp_path / 'shop.db'}",
        "DJANGO_SETTINGS_MODULE": "site_settings",
        "PYTHONPATH": os.pathsep.join([str(project), *(path for path in sys.path if path)]),
    }
    ran = subprocess.run(
        [sys.executable, "-c", DJANGO], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    what = "shop.tasks.send_receipt: rolled back with the transaction that enqueued it"
    said = [line.partition(": ")[2] or line for line in ran.stdout.splitlines() if "migrat" not in line]
    assert said == [what, "inner", what, "outer", "1"]
