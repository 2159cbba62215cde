"""The one `Dibs` of a Django project.

It goes where Django's connection of its alias goes *now*, which a test run changes. What it is asked inside
`atomic()` it asks on Django's own connection, so that it sees and changes what the transaction does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from functools import cache
from typing import Any, NamedTuple, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from dibs.app import Dibs
from dibs.bindings import OwnConnection, connector
from dibs.bindings.django_address import address, can_be_shared, fingerprint, password
from dibs.contrib.django import discovery
from dibs.contrib.django.closing import aclosing, closing
from dibs.contrib.django.settings import Settings, read
from dibs.contrib.django.stores import JoiningStore
from dibs.dialects import DatabaseUrl, Dialect, dialect_for
from dibs.errors import ConfigurationError
from dibs.loop import loop_runs_here
from dibs.ops import Op
from dibs.places import Place
from dibs.store import Store
from dibs.tasks import Call, Job

R = TypeVar("R")
T = TypeVar("T")


class _Place(NamedTuple):
    """What follows from where the connection leads."""

    fingerprint: tuple[str, ...]
    url: DatabaseUrl
    dialect: Dialect
    store: JoiningStore


@cache
def project_app() -> ProjectDibs:
    """Return the project's app; raise ConfigurationError if `settings.DIBS` is wrong."""
    return ProjectDibs(read())


class ProjectDibs(Dibs):
    """The queue of a Django project. Made by `from dibs.contrib.django import app`."""

    wants_zones = True  # filters by date are done by the server, as in the admin

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.alias = settings.alias
        self._place: _Place | None = None
        super().__init__(
            lambda: self._here().url,
            connection=lambda: connections[self.alias],
            imports=settings.imports,
            **settings.passed_on,
        )
        self.place = "dibs.contrib.django:app"
        self.defaults = settings.defaults
        self.around(closing)
        self.around(aclosing)

    def __repr__(self) -> str:
        return f"<dibs of the database {self.alias!r}>"

    # -- where ------------------------------------------------------------------------------------

    def _here(self) -> _Place:
        connection = connections[self.alias]
        now = fingerprint(connection)
        place = self._place
        if place is None or place.fingerprint != now:
            if place is not None:
                place.store.close()
            url = address(connection)
            dialect = dialect_for(url, schema=self._schema, prefix=self._prefix)
            place = self._place = _Place(now, url, dialect, JoiningStore(dialect, self._connector(url), self.alias))
        return place

    def _connector(self, url: DatabaseUrl) -> Callable[[str], OwnConnection]:
        connect = connector(url, password=lambda: password(connections[self.alias]))

        def connect_if_shared(name: str) -> OwnConnection:
            if not can_be_shared(connections[self.alias]):
                raise ConfigurationError(
                    f"DATABASES[{self.alias!r}] is in memory, where no worker can reach it: name a file "
                    '(in tests: "TEST": {"NAME": …}), or run the jobs in the test\'s own thread'
                )
            return connect(name)

        return connect_if_shared

    @property
    def dialect(self) -> Dialect:
        """The SQL of the project's database."""
        return self._here().dialect

    @property
    def store(self) -> JoiningStore:
        """Django's connection inside `atomic()`, dibs' own outside."""
        return self._here().store

    def new_store(self, *, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        place = self._here()
        return Store(place.dialect, self._connector(place.url), name=name, size=size, gap=gap)

    def run_on(
        self, connection: Any, make: Callable[[], Op[T]], *, once: bool = False, together: str | None = None
    ) -> T:
        if connection is None:  # decided already: not on Django's connection, though it may be in a transaction
            return self.store.run_alone(make, once=once)
        return super().run_on(connection, make, once=once, together=together)

    # -- async --------------------------------------------------------------------------------------

    # Async code has no atomic() of its own, but it may have been called from inside one (async_to_sync, a TestCase).
    # Django's way to that connection is its thread.

    async def aenqueue_call(self, call: Call[R]) -> Job[R]:
        """`enqueue_call` for async code; it joins the transaction of the thread that Django's async code runs in."""
        if call.options.connection is not None:
            return await super().aenqueue_call(call)
        job: Job[R] = await sync_to_async(self.enqueue_call, thread_sensitive=True)(call)
        return job

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Job[Any]]:
        """`enqueue_many` for async code."""
        if connection is not None:
            return await super().aenqueue_many(calls, connection=connection)
        jobs: list[Job[Any]] = await sync_to_async(self.enqueue_many, thread_sensitive=True)(calls)
        return jobs

    def task_context(self) -> Context:
        return copy_context()  # in it is from where async code comes back to the thread that has the connection

    def run_coroutine(self, coroutine: Coroutine[Any, Any, R]) -> R:
        if loop_runs_here():
            return super().run_coroutine(coroutine)

        async def awaited() -> R:
            return await coroutine

        result: R = async_to_sync(awaited)()  # what it asks of the ORM comes back to this thread, and its connection
        return result

    async def ask(self, place: Place, make: Callable[[], Op[R]]) -> R:
        return await self.in_thread(lambda: place.run(make))

    async def in_thread(self, function: Callable[[], R]) -> R:
        result: R = await sync_to_async(function, thread_sensitive=True)()
        return result

    # -- tasks --------------------------------------------------------------------------------------

    def load(self) -> None:
        """Import the tasks of every installed app, and DIBS["IMPORTS"]. A worker does it when it starts."""
        super().load()
        discovery.discover(self)
