"""The events of an app: who is told what, and what becomes of handlers that are slow, broken or elsewhere."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dibs
from conftest import wait_for
from dibs import ConfigurationError, Dibs, Event, events
from dibs.events import Events


def event(number: int = 1) -> Event:
    return Event(name="done", job_id=number, task="t", queue="q")


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    """With the list of names; so is a decorator without a name."""
    app = Dibs(f"sqlite:///{tmp_path}/dibs.db")
    for names in (("done", "fialed"), (), (print,)):
        with pytest.raises(ConfigurationError, match=r"enqueued, duplicate, started, .*expired") as caught:
            app.on(*names)
    assert "fialed" not in str(caught.value)
    assert not app.events.handlers


def test_an_event_is_frozen() -> None:
    """Handlers share it, so none can change it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        event().task = "other"  # type: ignore[misc]


def test_handlers_are_called_in_order_from_a_thread_of_their_own() -> None:
    """One after the other; the teller does not wait."""
    told: list[tuple[int, str]] = []
    several = Events()
    several.add(("done",), lambda event: told.append((event.job_id, threading.current_thread().name)))
    several.add(("failed",), lambda event: told.append((-1, "")))
    for number in range(100):
        several.tell(event(number))
    assert several.flush()
    assert told == [(number, "dibs-events") for number in range(100)]


def test_what_a_handler_can_not_take_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that hangs holds up nobody who tells: beyond a number events are dropped, counted and reported once."""
    monkeypatch.setattr(events, "MOST_WAITING", 10)
    gate, began, told = threading.Event(), threading.Event(), list[int]()
    slow = Events()

    def handler(event: Event) -> None:
        began.set()
        gate.wait(20)
        told.append(event.job_id)

    slow.add(("done",), handler)
    slow.tell(event(0))
    assert began.wait(5)
    for number in range(1, 31):
        slow.tell(event(number))
    assert slow.dropped == 20
    assert not slow.flush(0.05)
    assert caplog.text.count("too slow") == 1
    gate.set()
    assert slow.flush()
    assert told == list(range(11))


def test_errors_of_handlers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it raises, the next handler and the next event are served; its traceback is logged and scrubbed, but
    not the task's own error that it was raised from."""
    told: list[int] = []
    broken = Events(lambda text: text.replace("4929", "(card)"))

    def raises(event: Event) -> None:
        if event.job_id == 1:
            raise GeneratorExit("card 4929")
        assert event.exception is not None
        raise event.exception

    async def araises(event: Event) -> None:
        raise ValueError("of the async one") from event.exception

    broken.add(("done",), raises)
    broken.add(("done",), araises)
    broken.add(("done",), lambda event: told.append(event.job_id))
    broken.tell(event(1))
    broken.tell(dataclasses.replace(event(2), exception=KeyError("hunter2"), error="KeyError: •••"))
    assert broken.flush()
    assert told == [1, 2]
    assert "card (card)" in caplog.text
    assert "KeyError: •••" in caplog.text
    assert "of the async one" in caplog.text
    assert "hunter2" not in caplog.text


def test_an_async_handler_that_hangs_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Others wait for it, so it has its time; then it is cancelled, and that is logged."""
    monkeypatch.setattr(events, "LONGEST_HANDLER", 0.05)
    cancelled = threading.Event()
    hanging = Events()

    async def hangs(event: Event) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    hanging.add(("done",), hangs)
    hanging.tell(event())
    assert hanging.flush()
    assert cancelled.wait(5)
    assert "longer than 0.05 s" in caplog.text
    hanging.loop.close()


def test_a_forked_process_has_handlers_of_its_own() -> None:
    """An app made and used before a fork tells what happens in the child in the child."""
    told: list[int] = []
    forked = Events()
    forked.add(("done",), lambda event: told.append(event.job_id))
    forked.tell(event(1))
    assert forked.flush()
    child = os.fork()
    if child == 0:
        forked.tell(event(2))
        os._exit(0 if forked.flush() and told == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told == [1]


def test_a_program_that_ends_has_called_its_handlers(tmp_path: Path) -> None:
    """Events are not lost with the end of a short program."""
    program = f"""
import time
from dibs import Dibs, migrations
app = Dibs("sqlite:///{tmp_path}/dibs.db")
@app.task(name="noop")
def noop() -> None: ...
@app.on("enqueued")
def told(event):
    time.sleep(0.3)
    print(event.name, event.task)
noop.enqueue()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(dibs.__file__).parent.parent)},
    )
    assert (ran.returncode, ran.stdout) == (0, "enqueued noop\n"), ran.stderr


def test_nothing_is_started_where_nobody_listens() -> None:
    """Without a handler for it an event is not even kept."""
    silent = Events()
    silent.add(("failed",), print)
    silent.tell(event())
    assert silent.flush()
    wait_for(lambda: not any(thread is silent._thread for thread in threading.enumerate()))
