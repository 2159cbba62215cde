"""Where a queue is, and over whose connection an op goes: the user's, in his transaction, or one of dibs' own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dibs import ops
from dibs.ambient import Transaction, ambient
from dibs.bindings import bind, connector, is_async
from dibs.bindings.hints import Advising
from dibs.bindings.leftovers import listen
from dibs.dialects import EXAMPLE, DatabaseUrl, Dialect, dialect_for, parse
from dibs.errors import AutocommitConnection, ConfigurationError, UnsupportedConnection, lacks_character
from dibs.ops import Op
from dibs.settings import Options, name, prefix_of
from dibs.store import Store

T = TypeVar("T")

if TYPE_CHECKING:
    from functools import cached_property as late
else:

    class late:  # noqa: N801 - stands for a function
        """What is made when it is first asked for. As `cached_property`, whose lock in Python 3.11 a fork may find held by
        a thread that the child does not have."""

        def __init__(self, make):
            self._make = make

        def __get__(self, app, owner=None):
            if app is None:
                return self
            return app.__dict__.setdefault(self._make.__name__, self._make(app))


#: Where the database's URL is looked for when none is given.
VARIABLES = ("DIBS_DATABASE_URL", "DATABASE_URL")


class Connections:
    """The part of an app that knows its database. What the settings mean is said where they are given: `Dibs`."""

    #: Does the code around it ask the server for times in zones by their names? A framework knows; dibs does not.
    wants_zones = False

    def __init__(
        self,
        url: str | Any,
        *,
        password: Callable[[], str] | None,
        schema: str | None,
        prefix: str,
        connection: Callable[[], Any] | None,
    ) -> None:
        if hasattr(url, "render_as_string"):
            url = url.render_as_string(hide_password=False)
        url = url or next((os.environ[variable] for variable in VARIABLES if os.environ.get(variable)), None)
        if not url:
            raise ConfigurationError(
                f'no database: write Dibs("{EXAMPLE}"), or set {" or ".join(VARIABLES)}. '
                "There is no default, so that a program that lacks its variable does not queue into a file of its own"
            )
        self._url: DatabaseUrl | Callable[[], DatabaseUrl] = url if callable(url) else parse(url)
        self._schema = None if schema is None else name(schema, "schema", longest=60)
        self._prefix = prefix_of(prefix)
        #: What answers the password of this moment, where passwords expire.
        self.password = password
        self._ambient = connection
        #: While a test runs jobs in its own transaction: answers the connection to use in the place of dibs' own, or
        #: None where that is to be one of dibs' own after all. See `dibs.testing`.
        self.stand_in: Callable[[], Any] | None = None
        if connection is not None:
            listen()

    @property
    def url(self) -> DatabaseUrl:
        """The database's address."""
        return self._url() if callable(self._url) else self._url

    @late
    def dialect(self) -> Dialect:
        """The SQL of this app's database."""
        return dialect_for(self.url, schema=self._schema, prefix=self._prefix)

    @late
    def store(self) -> Store:
        """dibs' own connections for what this process asks; a worker has more of its own."""
        return self.new_store()

    def new_store(self, *, name: str = "dibs", size: int = 5, gap: float = 15.0) -> Store:
        """Return further connections of dibs' own, such as for one thread of a worker."""
        return Store(self.dialect, connector(self.url, password=self.password), name=name, size=size, gap=gap)

    def migrate(self) -> list[str]:
        """Make or update dibs' tables; return what was applied. Safe to run again, and by several at once.

        Raises ReadOnlyDatabase, UnsuitableDatabase, DatabaseUnavailable or DatabaseError.
        """
        return self.store.migrate()

    async def amigrate(self) -> list[str]:
        """`migrate` for async code, such as at an application's start."""
        return await asyncio.to_thread(self.migrate)

    def close(self) -> None:
        """Close the idle connections of this process. The app can still be used."""
        self.store.close()

    def transaction(self, connection: Any) -> Transaction:
        """Have enqueues join the transaction of this connection: `with app.transaction(session):`, or `async with`.

        For this thread or asyncio task, until the block ends. Nothing is begun or ended on the connection.
        """
        return Transaction(self, connection)

    def whose(self, options: Options) -> Any:
        """Return the connection that an enqueue with these options goes over: None for dibs' own."""
        if options.connection is not None:
            return options.connection
        joined = None if options.own else ambient(self, self._ambient)
        return self._stand_in() if joined is None else joined

    def _stand_in(self) -> Any:
        return None if self.stand_in is None else self.stand_in()

    def run_on(
        self, connection: Any, make: Callable[[], Op[T]], *, once: bool = False, together: str | None = None
    ) -> T:
        """Run an op in the transaction of the user's connection, or in one of dibs' own where there is none.

        `together` names what must not be committed statement by statement, if that is so.
        """
        if connection is None:
            return self.store.run(make, once=once)
        binding = bind(connection)
        if is_async(binding):
            raise UnsupportedConnection(
                f"{type(connection).__name__} is an async connection: await the call with the a in front (aenqueue)"
            )
        self._check_family(binding.family, connection)
        if together and binding.commits_alone:
            raise AutocommitConnection(together)
        try:
            with Advising():
                return ops.run(self.dialect.over_users_connection(make()), binding)
        except UnicodeEncodeError as error:
            raise _unwritable(error) from error

    async def arun_on(
        self, connection: Any, make: Callable[[], Op[T]], *, once: bool = False, together: str | None = None
    ) -> T:
        """`run_on` for async code; an op on dibs' own connection runs in a thread."""
        if connection is None:
            return await asyncio.to_thread(self.store.run, make, once=once)
        binding = bind(connection)
        if not is_async(binding):
            if any(
                connection is known for known in (ambient(self, self._ambient), self._stand_in())
            ):  # not handed to this call: what goes over it blocks anyway
                return self.run_on(connection, make, once=once, together=together)
            raise UnsupportedConnection(
                f"{type(connection).__name__} is a blocking connection: call it without the a in front (enqueue)"
            )
        self._check_family(binding.family, connection)
        if together and await binding.commits_alone():
            raise AutocommitConnection(together)
        try:
            with Advising():
                return await ops.arun(self.dialect.over_users_connection(make()), binding)
        except UnicodeEncodeError as error:
            raise _unwritable(error) from error

    def _check_family(self, family: str, connection: Any) -> None:
        if family != self.dialect.family:
            raise UnsupportedConnection(
                f"{type(connection).__name__} is a connection to another kind of database than {self.url}"
            )


def _unwritable(error: UnicodeEncodeError) -> Exception:
    """Return what a driver says that can't write a text in the connection's own character set, in our words. Nothing was sent."""
    advice = "connect with one that holds every text, such as UTF-8"
    return lacks_character(error.encoding, str(error.object)[error.start], advice)
