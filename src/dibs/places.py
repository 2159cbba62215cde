"""Where an op goes that is not on a connection of dibs' own alone: a place is a connection or a store, asked alike.

An async connection answers on its own loop. Blocking code can ask it from another thread, while that loop turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from dibs import ops
from dibs.bindings import bind, is_async
from dibs.errors import DibsError
from dibs.ops import Op
from dibs.store import Store

T = TypeVar("T")


class Place(Protocol):
    """Where ops go: a connection, or a store. `run` is also called from tasks, in any thread."""

    def run(self, make: Callable[[], Op[T]]) -> T: ...

    async def arun(self, make: Callable[[], Op[T]]) -> T: ...


class OnStore:
    """dibs' own connections: each op is a transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, make: Callable[[], Op[T]]) -> T:
        return self._store.run(make)

    async def arun(self, make: Callable[[], Op[T]]) -> T:
        return await asyncio.to_thread(self._store.run, make)


class OnConnection:
    """A connection of the user's; ops are part of the transaction that is open there."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` is the one that an async connection works on, where it is known already."""
        self._connection = connection
        self._loop = loop

    def run(self, make: Callable[[], Op[T]]) -> T:
        binding = bind(self._connection)
        if not is_async(binding):
            return ops.run(make(), binding)
        if self._loop is None or not self._loop.is_running() or _loop_here() is self._loop:
            raise DibsError(
                f"{type(self._connection).__name__} is an async connection: await the call with the a in front "
                "(arun, aenqueue, ajoin, acheckpoint)"
            )
        return asyncio.run_coroutine_threadsafe(self.arun(make), self._loop).result()

    async def arun(self, make: Callable[[], Op[T]]) -> T:
        binding = bind(self._connection)
        if not is_async(binding):
            return ops.run(make(), binding)
        self._loop = asyncio.get_running_loop()
        return await ops.arun(make(), binding)


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
