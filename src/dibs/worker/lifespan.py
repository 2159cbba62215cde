"""The lifespan: what `Dibs(lifespan=…)` makes is entered before a worker's first job and left after its last."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from dibs.app import Dibs
from dibs.errors import ConfigurationError, DibsError
from dibs.loop import TaskLoop

logger = logging.getLogger("dibs")

#: How long (seconds) it may take to leave it; a worker that stops must not hang on it.
LONGEST_LEAVING = 5.0

#: How often (seconds) it is looked whether the worker was stopped while it was entered.
GLANCE = 0.1


class Lifespan:
    """One lifespan of one worker. It is entered and left by one asyncio task, so task groups may be used in it."""

    def __init__(self, app: Dibs, loop: TaskLoop, *, worker: str, broke: Callable[[BaseException], None]) -> None:
        """`broke` is called if it ends with an error while the worker works: what the tasks use is gone then."""
        self._app = app
        self._loop = loop
        self._worker = worker
        self._broke = broke
        self._begun = threading.Event()
        self._entered = threading.Event()
        self._leave = asyncio.Event()
        self._leaving = False
        self._life: Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def enter(self, stopping: threading.Event) -> bool:
        """Enter it, if there is one; raise what it raises. Return False when the worker was stopped meanwhile."""
        if self._app.lifespan is None:
            return True
        self._life = self._loop.run(self._live())
        self._begun.wait()
        while not self._entered.is_set():
            if self._life.done():
                self._life.result()
                raise DibsError("the lifespan ended without a yield")
            if stopping.is_set() and self._task is not None:
                self._loop.get().call_soon_threadsafe(self._task.cancel)
                wait([self._life], LONGEST_LEAVING)
                return False
            self._entered.wait(GLANCE)
        self._life.add_done_callback(self._ended)
        return True

    def leave(self) -> None:
        """Leave it, if it was entered; what it raises is logged."""
        if self._life is None or not self._entered.is_set():
            return
        self._leaving = True
        self._loop.get().call_soon_threadsafe(self._leave.set)
        if not wait([self._life], LONGEST_LEAVING).done:
            logger.error("leaving the lifespan takes longer than %g s: it is not waited for", LONGEST_LEAVING)
        self._app._states.pop(self._worker, None)

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        self._begun.set()
        assert self._app.lifespan is not None
        manager = self._app.lifespan(self._app)
        if not hasattr(manager, "__aenter__"):
            raise ConfigurationError(
                f"Dibs(lifespan=…) made {type(manager).__name__}, which is no async context manager: "
                "@asynccontextmanager, async def, one yield"
            )
        async with manager as state:
            self._app._states[self._worker] = state
            self._entered.set()
            await self._leave.wait()

    def _ended(self, life: Future[None]) -> None:
        error = life.exception() if not life.cancelled() else asyncio.CancelledError()
        if error is None:
            return
        if self._leaving:
            logger.error("leaving the lifespan met an error", exc_info=error)
        else:
            self._broke(error)
