"""Where `app.transaction(…)` is entered: in the context of the code that enqueues, or nobody joins it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dibs import ConfigurationError, Dibs


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dibs]:
    app = Dibs(f"sqlite:///{tmp_path / 'dibs.db'}")
    app.migrate()
    yield app
    app.close()


def test_left_elsewhere(app: Dibs) -> None:
    """A transaction that was entered in a context of its own has been joined by nobody, and says so."""
    transaction = app.transaction(object())
    copy_context().run(transaction.__enter__)
    with pytest.raises(ConfigurationError, match="make it `async def`"):
        transaction.__exit__(None, None, None)


class Base(DeclarativeBase):
    pass


class Note(Base):
    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


def test_what_was_written_after_a_commit_will_be_committed(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    """A next transaction of the session that has something in it is one like the first: nothing is said of it."""
    engine = sqlalchemy.create_engine(str(app.url))
    Base.metadata.create_all(engine)
    task = app.task(name="noop")(lambda: None)
    with Session(engine) as session, app.transaction(session):
        note = Note(text="a")
        for change in (lambda: session.add(note), lambda: setattr(note, "text", "b"), lambda: session.delete(note)):
            for flush in (False, True):
                change()
                if flush:
                    session.flush()
                task.enqueue()
                if flush:
                    session.commit()
    assert caplog.messages == []
    assert len(app.jobs()) == 6
    engine.dispose()


def test_async_code_is_warned_of_an_enqueue_after_the_commit(app: Dibs, caplog: pytest.LogCaptureFixture) -> None:
    """As blocking code is, and at the line that awaits."""

    async def main() -> None:
        engine = create_async_engine(str(app.url).replace("sqlite", "sqlite+aiosqlite"))
        async with AsyncSession(engine) as session, app.transaction(session):
            await session.execute(sqlalchemy.text("SELECT 1"))
            await session.commit()
            await session.execute(sqlalchemy.text("SELECT 1"))
            await app.task(name="noop")(lambda: None).aenqueue()
        await engine.dispose()

    asyncio.run(main())
    (said,) = caplog.messages
    assert said.startswith(f"{__file__}, line ")


def post(app: Dibs, dependency: Any) -> int:
    """Ask a web application, whose one endpoint enqueues and then says no; return the status."""
    web = FastAPI()
    task = app.task(name="noop")(lambda: None)

    @web.post("/")
    def enqueue(session: Session = Depends(dependency)) -> None:
        session.execute(sqlalchemy.text("SELECT 1"))
        task.enqueue()
        raise HTTPException(402)

    async def main() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://shop") as client:
            return (await client.post("/")).status_code

    return asyncio.run(main())


def test_a_blocking_session_in_fastapi(app: Dibs) -> None:
    """A dependency that is `async def` is in the context of the request, also of an endpoint that runs in a thread."""
    engine = sqlalchemy.create_engine(str(app.url))

    async def transaction() -> AsyncIterator[Session]:
        with Session(engine) as session, app.transaction(session):
            yield session

    assert post(app, transaction) == 402
    assert app.jobs() == []
    engine.dispose()


def test_a_dependency_in_a_thread_in_fastapi(app: Dibs) -> None:
    """One that is a plain `def` is not, and the first request shows it."""
    engine = sqlalchemy.create_engine(str(app.url))

    def transaction() -> Iterator[Session]:
        with Session(engine) as session, app.transaction(session):
            yield session

    with pytest.raises(ConfigurationError, match="has not joined it"):
        post(app, transaction)
    engine.dispose()
