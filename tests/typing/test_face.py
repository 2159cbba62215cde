"""What a type checker refuses (`calls.py`) is refused when it runs, too; and calls that belong together take the same."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path
from typing import assert_type

import pytest

from dibs import CurrentJob, Dibs, InvalidArgument, JobRecord, State, Worker
from dibs.tasks import AsyncTask, Call, Job, SyncTask, Task, Using
from dibs.worker.worker import WorkerSettings


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


@pytest.mark.parametrize("kind", [Dibs, Task, Using, Job, CurrentJob])
def test_twins_take_the_same(kind: type) -> None:
    """`x` and `ax` have the same arguments with the same defaults, so that one is learnt with the other."""
    twins = [name for name in dir(kind) if name.startswith("a") and hasattr(kind, name[1:])]
    assert twins
    for name in twins:
        assert inspect.iscoroutinefunction(getattr(kind, name)), name
        assert inspect.signature(getattr(kind, name)) == inspect.signature(getattr(kind, name[1:])), name


def test_what_does_io_has_a_twin() -> None:
    """Each public method of an app that asks its database can be awaited under the same name with an `a`."""
    asks = [
        name
        for name, method in inspect.getmembers(Dibs, inspect.isfunction)
        if not name.startswith("_")
        and any(word in inspect.getsource(method) for word in ("store.run", "store.migrate"))
    ]
    assert {"job", "cancel", "migrate", "counts"} <= set(asks)
    assert [
        name for name in asks if not hasattr(Dibs, f"a{name.removeprefix('a')}") and not name.endswith("run_on")
    ] == []


def test_an_app_knows_the_settings_of_its_workers() -> None:
    """`app.worker(…)` is typed with the settings that `Worker` takes."""
    settings = [name for name in inspect.signature(Worker).parameters if name != "app"]
    assert list(WorkerSettings.__annotations__) == settings
