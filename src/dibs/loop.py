"""The event loop on which a process's async tasks, its lifespan and its async handlers run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger("dibs")

#: How long (seconds) to wait for a thread that runs tasks to end; one whose task goes on is left behind.
LEAVING = 0.5


class TaskLoop:
    """One event loop in a thread of its own, which starts when it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop; it runs."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._turn, args=(self._loop,), name="dibs-loop", daemon=True)
                self._thread.start()
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Let the loop run a coroutine; called from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.get())

    def close(self) -> None:
        """Cancel what is left on the loop, close it, and wait a moment for that. Asked for again, there is a new one."""
        with self._lock:
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(LEAVING)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop):  # in the end it cancels what is left and closes the loop
            while self._loop is loop:
                try:
                    loop.run_forever()
                except BaseException as error:  # noqa: BLE001 - SystemExit in a callback of the user's: not his to end
                    logger.warning("%s came out of the event loop; it goes on", type(error).__name__)


def loop_runs_here() -> bool:
    """Does an event loop run in this thread, so that what blocks would block it?"""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
