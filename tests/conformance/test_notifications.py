"""Where a database can tell: what it tells waiting workers, and when. A hint, never more than one a queue and commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from conformance.hands import Queue, new_job, run_in
from dibs import ops
from dibs.bindings.binding import OwnConnection
from dibs.jobs import NewJob
from dibs.states import State


@pytest.fixture
def heard(queue: Queue) -> Iterator[Callable[[], list[str]]]:
    """Return what tells which queues were heard of since it was last asked."""
    if queue.dialect.channel is None:
        pytest.skip("it can't tell anybody")
    ear = queue.db.connect()
    ops.run(queue.dialect.listen(), ear)

    def since() -> list[str]:
        queue.do(lambda: queue.dialect.tell(["the end"]))  # what was told before it is heard before it
        queues: list[str] = []
        while "the end" not in queues:
            told = ear.hear(10.0)
            assert told, "nothing was heard"
            queues += [json.loads(each)[0] for each in told]
        assert queues.pop() == "the end"
        return queues

    yield since
    ear.close()


def enqueue(queue: Queue, *jobs: NewJob, tell: bool = True) -> None:
    queue.do(lambda: queue.dialect.enqueue(jobs, tell=tell))


def enqueue_in(connection: OwnConnection, queue: Queue, *jobs: NewJob) -> None:
    run_in(connection, queue.dialect.enqueue(jobs, tell=True))


def test_a_new_job_is_told_of(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """With a key or without, alone or in a bulk; each queue once."""
    enqueue(queue, new_job())
    assert heard() == ["q"]
    enqueue(queue, new_job(key="k"))
    assert heard() == ["q"]
    enqueue(queue, *[new_job(queue=name) for name in "abab"])
    assert sorted(heard()) == ["a", "b"]
    enqueue(queue, new_job(queue='ü"\\'))
    assert heard() == ['ü"\\']


def test_nothing_is_told_of_what_is_not_due(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """A worker woken for it would find nothing; neither for a duplicate, nor where it was switched off."""
    enqueue(queue, new_job(delay=60.0))
    enqueue(queue, new_job(key="k"), tell=False)
    enqueue(queue, new_job(key="k"))
    assert heard() == []


def test_it_is_told_at_the_commit(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """Not before, since there would be nothing to find; and once for many enqueues in one transaction."""
    with queue.transaction(undone=False) as user:
        for n in range(20):
            enqueue_in(user, queue, new_job(key=f"k{n}"), new_job(queue="other"))
        assert heard() == []
    assert sorted(heard()) == ["other", "q"]


def test_rolled_back_nothing_is_told(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """No job, no wake-up."""
    with queue.transaction() as user:
        enqueue_in(user, queue, new_job(), new_job(key="k"))
    assert heard() == []


def test_what_becomes_due_again_is_told_of(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """Requeued, taken back after its worker went quiet, or let go on after a pause."""
    failed, running = queue.job_in(State.FAILED), queue.running(queue="expiring")
    queue.requeue(failed)
    assert heard() == ["q"]
    queue.lapse(running.id)
    queue.expire()
    assert heard() == ["expiring"]
    queue.app.pause("paused")
    queue.app.resume("paused")
    assert heard() == ["paused"]


def test_an_app_may_keep_quiet(queue: Queue, heard: Callable[[], list[str]]) -> None:
    """`Dibs(notify=False)`: its workers poll."""
    app = queue.db.app(notify=False)
    task = app.task(name="t", queue="q")(lambda: None)
    task.enqueue()
    app.enqueue_many([task.call(), task.using(key="k").call()])
    app.close()
    assert heard() == []
