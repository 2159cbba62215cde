"""Slots: what is held waits its turn, can be taken back until it begins, and can come again after that."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from dibs import Dibs
from dibs.codec import JsonCodec
from dibs.dialects import file_url
from dibs.jobs import Claim, Position
from dibs.tasks import Task
from dibs.worker.runs import Run
from dibs.worker.slots import LoopSlots, Slots, ThreadSlots, encode
from dibs.worker.verdicts import Outcome, Returned

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def run_of(task: Task[Any, Any], job_id: int, *, claims: int, payload: str = "{}") -> Run:
    claim = Claim(
        id=job_id,
        queue="q",
        task=task.name,
        payload=payload,
        priority=0,
        attempts=0,
        max_attempts=9,
        crashes=0,
        releases=0,
        claims=claims,
        position=Position(NOW, job_id),
        task_key=None,
        key_until=None,
        retention=None,
        errors=None,
        meta=None,
        checkpoint=None,
        created_at=NOW,
        claimed_at=NOW,
        started=False,
    )
    return Run(claim, task, received=time.monotonic(), good_until=time.monotonic() + 60)


@pytest.mark.parametrize("kind", [ThreadSlots, LoopSlots])
def test_taken_back_and_claimed_again(kind: type[Slots], tmp_path: Path) -> None:
    """A held job that was taken back and is claimed again runs, once, also before a slot has come across the first."""
    app = Dibs(file_url(tmp_path / "unused.db"))
    open_gate = threading.Event()

    def work(wait: bool = False) -> None:
        if wait:
            assert open_gate.wait(10)

    async def awork(wait: bool = False) -> None:
        while wait and not open_gate.is_set():
            await asyncio.sleep(0.005)

    task: Task[Any, Any] = app.task(work) if kind is ThreadSlots else app.task(awork)
    ended: SimpleQueue[tuple[Run, Outcome]] = SimpleQueue()
    slots = kind(app, "w", 1, [task.name], lambda run, outcome: ended.put((run, outcome)))
    first = run_of(task, 1, claims=1, payload='{"wait":true}')
    slots.start([first])
    while first.begun is None:
        time.sleep(0.001)

    held = run_of(task, 2, claims=1)
    slots.start([held])
    assert slots.take_back(lambda run: True) == [held]
    again = run_of(task, 2, claims=2)
    slots.start([again])
    open_gate.set()

    assert [ended.get(timeout=10) for _ in range(2)] == [(first, Returned(None)), (again, Returned(None))]
    assert held.begun is None
    slots.close()


def test_large_arguments_are_not_hoarded(tmp_path: Path) -> None:
    """What waits for a slot takes 16 MB of memory, not a thousand times a megabyte: a worker in a container would be killed
    for it. With small arguments again as many are claimed as before."""
    app = Dibs(file_url(tmp_path / "unused.db"))

    def work(text: str) -> None: ...

    task: Task[Any, Any] = app.task(work)
    ended: SimpleQueue[Run] = SimpleQueue()
    slots = ThreadSlots(app, "w", 10, [task.name], lambda run, _: ended.put(run))

    def claim(payload: str) -> int:
        slots.start([run_of(task, number, claims=1, payload=payload) for number in range(10)])
        for _ in range(10):
            ended.get(timeout=10)
        return slots.room()[1]

    assert claim('{"text":""}') > 500
    large = '{"text":"' + "x" * 1_000_000 + '"}'
    assert claim(large) < 40
    assert claim(large) < 25
    for _ in range(20):
        small = claim('{"text":""}')
    assert small > 500
    slots.close()


@pytest.mark.parametrize("given", [b"1", None, '"\udcff"', '"a\0b"', 7])
def test_a_codec_that_gives_no_text(given: Any, tmp_path: Path) -> None:
    """A result that a codec of the user's wrote as something that can't be stored is left out; the work was done."""

    class Codec(JsonCodec):
        def dump(self, value: object, *, path: str = "") -> str:
            text: str = given
            return text if path == "result" else super().dump(value, path=path)

    app = Dibs(file_url(tmp_path / "unused.db"), codec=Codec())

    def work() -> int:
        return 1

    assert encode(app.task(work), 1) == Returned(None)
