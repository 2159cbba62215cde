"""Hooks: where a program's own code is called by the way: around each run, at each enqueue, and when something
happened to a job. Here they are registered; the worker calls them (`worker/arounds`, `worker/lifespan`).

No error in a hook loses a job: at worst a run is tried again, as after an error of the task's own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from dibs.codec import JsonCodec
from dibs.errors import ConfigurationError, DibsError
from dibs.events import Event, EventName, Events, names_checked
from dibs.secrets import NAMES, scrubbed

D = TypeVar("D", bound="Callable[[Draft], None]")
H = TypeVar("H", bound=Callable[[Event], Any])

#: What `Dibs(lifespan=…)` takes; an `async def` with one `yield` need not be decorated.
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]

logger = logging.getLogger("dibs")

#: Bytes of JSON that the hooks of an enqueue may add to a job, together.
MOST_META = 8_192


class Around(NamedTuple):
    """A hook around runs: what makes its context manager for a job, and which kind that is."""

    make: Callable[[Any], Any]
    is_async: bool
    name: str


def around_of(function: Callable[..., Any]) -> Around:
    """Return the hook that a function with one `yield` is; it may be decorated as a context manager already."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function):
        return Around(contextmanager(function), False, name)
    if inspect.isasyncgenfunction(function):
        return Around(asynccontextmanager(function), True, name)
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        return Around(function, inspect.isasyncgenfunction(inner), name)
    raise ConfigurationError(
        f"{name} can't be called around runs: write a function, def or async def, that takes the job, with one yield "
        "where the run is"
    )


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that is about to be written, as `@app.on_enqueue` sees it. Its arguments are not shown.

    What is put into `meta` is stored beside the arguments: plain JSON, at most 8 KB for all hooks together.
    """

    task: str
    queue: str
    key: str | None
    priority: int
    run_at: datetime | None
    delay: float | None
    meta: dict[str, Any] = field(default_factory=dict)


class Hooks:
    """The hooks of an app that are not about runs; those are with the tasks' registry."""

    def __init__(self, *, lifespan: Callable[[Any], Any] | None, scrub: Callable[[str], str] | None) -> None:
        for name, function in (("lifespan", lifespan), ("scrub", scrub)):
            if function is not None and not callable(function):
                raise ConfigurationError(f"Dibs({name}=…) takes a function, not {type(function).__name__}")
        if asyncio.iscoroutinefunction(lifespan) or inspect.isgeneratorfunction(lifespan):
            raise ConfigurationError(
                "Dibs(lifespan=…) takes what makes an async context manager: @asynccontextmanager, async def, one yield"
            )
        self.lifespan = asynccontextmanager(lifespan) if inspect.isasyncgenfunction(lifespan) else lifespan
        self.scrub = scrub
        self.events = Events(scrub)
        self._on_enqueue: list[Callable[[Draft], Any]] = []
        #: For each worker that runs in this process what its lifespan yielded.
        self.states: dict[str, Any] = {}

    def on(self, *names: EventName) -> Callable[[H], H]:
        """Call a function, sync or async, with an `Event` when something happened: `@app.on("failed")`.

        - "enqueued", "duplicate": in the process that enqueues. In a transaction of yours that is when it was
          written, not when it was committed.
        - "started": a run begins. "done". "retried": it failed and will be tried again. "failed": for good, also
          where workers went quiet too often. "cancelled": a job that was running. "released": handed back.
        - "lost": a claim of this worker's whose lease ran out; `error` says who has the job now. "expired": upkeep took
          such a claim back.

        Handlers are called after the database said so, from a thread of their own (async ones on the loop of async
        tasks), one after the other. A slow one delays others, never a job; when 10,000 events wait, more are dropped
        and counted in `app.events.dropped`. Their errors are logged.

        Raises ConfigurationError for a name that is not in this list.
        """
        checked = names_checked(names)

        def add(handler: H) -> H:
            self.events.add(checked, handler)
            return handler

        return add

    def on_enqueue(self, function: D) -> D:
        """Call a function with the `Draft` of each job that is enqueued, to add to its `meta`.

        Such as the trace's context, the request's id, the tenant. Read it as `current_job().meta` or
        `app.job(id).meta`. An error in it is logged and what it added is left out; the job is enqueued all the same.
        """
        if not callable(function) or asyncio.iscoroutinefunction(function):
            raise ConfigurationError("on_enqueue takes a plain function: it is called wherever a job is enqueued")
        self._on_enqueue.append(function)
        return function

    @property
    def state(self) -> Any:
        """What the lifespan yielded, in a process whose worker runs. Raises DibsError in others."""
        return self.state_of(next(reversed(self.states), ""))

    def state_of(self, worker: str) -> Any:
        """Return what the lifespan of this worker yielded."""
        try:
            return self.states[worker]
        except KeyError:
            raise DibsError(
                "there is no state here: it is what Dibs(lifespan=…) yields, in the process of a worker that runs"
            ) from None

    def meta_of(self, draft: Draft) -> msgspec.Raw | None:
        """Return what the hooks put into a job's meta, as JSON."""
        text = ""
        for function in self._on_enqueue:
            before = dict(draft.meta)
            try:
                function(draft)
                draft.meta.pop(NAMES, None)
                written = _codec.dump(draft.meta, path="meta")
                if (size := len(written.encode())) > MOST_META:
                    raise ValueError(f"meta would be {size:,} bytes long, the most is {MOST_META:,}")
                text = written
            except Exception as error:  # noqa: BLE001 - the user's code; the job is what matters
                draft.meta.clear()
                draft.meta.update(before)
                name = getattr(function, "__qualname__", repr(function))
                said = scrubbed(f"{type(error).__name__}: {error}", self.scrub)
                logger.error("on_enqueue: what %s adds to a job of %s is left out: %s", name, draft.task, said)
        return msgspec.Raw(text.encode()) if draft.meta else None


_codec = JsonCodec()
