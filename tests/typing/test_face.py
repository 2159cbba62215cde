"""The face is typed: right calls pass mypy --strict, and each wrong call below must be an error.

mypy reads this file (it is among `files` in pyproject.toml) and complains about every `type: ignore` that it does
not need, so a wrong call that stopped being an error fails the type check. Run as a test it only checks that what
is written here is what happens.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import assert_type

import pytest

from dibs import Dibs, InvalidArgument, JobRecord, State
from dibs.tasks import AsyncTask, Call, Job, SyncTask


def test_tasks_keep_their_signatures(tmp_path: Path) -> None:
    """Enqueue takes what the function takes, and its job gives what the function gives, sync or async."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")

    @app.task
    def add(a: int, b: int = 2) -> int:
        return a + b

    @app.task(queue="mail", timeout=5)
    async def send(to: str) -> dict[str, str]:
        return {"to": to}

    assert isinstance(add, SyncTask)
    assert isinstance(send, AsyncTask)
    assert_type(add(1, b=3), int)
    job = add.enqueue(1)
    assert_type(job, Job[int])
    mail = send.using(key="k").enqueue(to="a@example.com")
    assert_type(mail, Job[dict[str, str]])
    assert_type(add.call(1), Call[int])

    with pytest.raises(InvalidArgument):
        add.enqueue("one")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        add.enqueue(1, c=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument):
        add.enqueue()  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument):
        send.using(key="k").enqueue(to=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        add.using(priority="high")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        add.using(color="red")  # type: ignore[call-arg]


def test_filters_are_typed(tmp_path: Path) -> None:
    """Orders take jobs by their ids or by the filters that there are; a filter that is misspelt is an error."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")
    assert_type(app.requeue(task="t", status=["failed", State.CANCELLED], since=timedelta(hours=3)), list[int])
    assert_type(app.cancel([7], reason="why"), list[int])
    assert_type(app.jobs(error="ValueError", limit=3), list[JobRecord])
    with pytest.raises(TypeError):
        app.cancel(tsak="t")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument):
        app.requeue(since="3h")  # type: ignore[arg-type]
