"""What a kind of connection is to the tests: how a user opens one, and ends a transaction on it.

Scenarios are written once, as coroutines. Blocking connections await nothing, so theirs run without an event loop
(some drivers refuse to work where one runs); the others run under asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

from databases import Database

T = TypeVar("T")


@dataclass
class Connected:
    """An open connection of the user's, as the user has it."""

    connection: Any
    is_async: bool
    #: Begins where it must be said; commits; rolls back; executes one statement. Blocking or awaitable.
    begin: Callable[[], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    execute: Callable[[str], Any]

    async def enqueue(self, using: Any, **arguments: Any) -> Any:
        """Enqueue with `enqueue` or `aenqueue`, whichever goes with this connection."""
        if self.is_async:
            return await using.aenqueue(**arguments)
        return using.enqueue(**arguments)

    async def enqueue_many(self, app: Any, calls: Any) -> Any:
        if self.is_async:
            return await app.aenqueue_many(calls, connection=self.connection)
        return app.enqueue_many(calls, connection=self.connection)

    async def finish(self, job: Any, result: Any = None) -> None:
        if self.is_async:
            await job.afinish(result, connection=self.connection)
        else:
            job.finish(result, connection=self.connection)


async def done(answer: Any) -> Any:
    """Return an answer, awaiting it where it must be."""
    return await answer if inspect.isawaitable(answer) else answer


Open = Callable[[Database], AbstractAsyncContextManager[Connected]]


@dataclass(frozen=True)
class Kind:
    """One kind of connection to some kinds of database."""

    name: str
    database: str  # "postgres", "mysql" (MariaDB too) or "sqlite"
    needs: Sequence[str]  # the modules that must be installed
    open: Open
    #: The same in autocommit mode; None where the driver has no such mode.
    autocommit: Open | None = None
    #: The same as set up by a user with other habits: rows as dicts, bytes for text, other cursors.
    oddly: Open | None = None
    #: The same with transactions at REPEATABLE READ.
    repeatable: Open | None = None
    is_async: bool = field(default=False)

    @property
    def missing(self) -> str | None:
        """Name what is not installed, if anything is."""
        return next((name for name in self.needs if not _is_there(name)), None)

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a scenario as code that uses this kind of connection would be run."""
        return asyncio.run(scenario) if self.is_async else _without_a_loop(scenario)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _without_a_loop(scenario: Coroutine[Any, Any, T]) -> T:
    try:
        scenario.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("this scenario awaited something, and its connection is a blocking one")
