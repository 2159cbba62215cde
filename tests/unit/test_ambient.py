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
from sqlalchemy.orm import Session

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
