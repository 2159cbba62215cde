"""The fetcher: what it lets itself be told, and for whom it claims when."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from conftest import wait_for
from dibs import Dibs
from dibs.worker.fetcher import Fetcher
from dibs.worker.outage import Outage
from dibs.worker.runs import Holdings
from dibs.worker.slots import LoopSlots, ThreadSlots


def make_fetcher(app: Dibs, queues: list[str] | None = None) -> Fetcher:
    return Fetcher(
        app,
        app.store,
        worker="w",
        lease=60.0,
        queues=queues,
        holdings=Holdings(),
        outage=Outage(),
        burst=False,
        idle_poll=60.0,
    )


@pytest.mark.parametrize(("queues", "heeded"), [(None, [True, True]), (["mine"], [True, False])])
def test_others_queues_wake_nobody(tmp_path: Path, queues: list[str] | None, heeded: list[bool]) -> None:
    """A worker of one queue does not look up at each job of the others; one of all queues does."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")
    for queue, expected in zip(("mine", "theirs"), heeded, strict=True):
        fetcher = make_fetcher(app, queues)
        fetcher.wake(queue)
        assert fetcher._bell.is_set() is expected


def test_slots_do_not_wait_for_slots_of_another_kind(tmp_path: Path) -> None:
    """That there is nothing for async tasks, claim after claim, keeps no sync one from being claimed the moment that a slot
    is free."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")
    app.migrate()
    gates = [threading.Event() for _ in range(2)]

    @app.task(name="hold")
    def hold(number: int) -> None:
        gates[number].wait(60)

    @app.task(name="other")
    async def other() -> None: ...

    fetcher = make_fetcher(app)
    threads = ThreadSlots(app, "w", 1, ["hold"], fetcher.report)
    fetcher.serve([threads, LoopSlots(app, "w", 1, ["other"], fetcher.report)])
    threads.most_ahead = 0
    app.enqueue_many([hold.call(number) for number in range(2)])
    try:
        assert fetcher._claim()
        for _ in range(8):
            fetcher._pauses[fetcher.slots[1]].until = 0.0
            assert fetcher._claim() is False, "there is nothing for the async slot"
        assert fetcher._claim() is None, "that one pauses"
        gates[0].set()
        wait_for(lambda: threads.room()[0], what="the first job to end")
        assert fetcher._claim(), "the second job, at once"
    finally:
        for gate in gates:
            gate.set()
        for slots in fetcher.slots:
            slots.close()
