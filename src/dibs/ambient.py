"""The ambient transaction: which connection a bare enqueue joins, when none was given.

The one of `with app.transaction(session):`, else the one that the app's callable names (`Dibs(connection=…)`) if a
transaction has begun on it and it leads to the queue's database, else one of dibs' own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dibs.bindings.advice import mind_the_commit, not_joined
from dibs.bindings.leftovers import listen
from dibs.errors import ConfigurationError
from dibs.rollbacks import Written, log, note

if TYPE_CHECKING:
    from dibs.connections import Connections

#: For each app of this thread or task, by its identity: the block that was entered last.
_entered: ContextVar[dict[int, Transaction]] = ContextVar("dibs_entered", default={})  # noqa: B039 - not changed in place


class Transaction:
    """What `app.transaction(connection)` returns: while it is entered, enqueues of this app join the connection.

    Works as `with` and as `async with`. It neither begins nor ends anything on the connection: that stays yours.
    Leaving it raises ConfigurationError where it had no effect: it was entered in a context that nobody else is in.
    """

    def __init__(self, app: Connections, connection: Any) -> None:
        self._app = app
        self.connection = connection
        self._tokens: list[Token[dict[int, Transaction]]] = []
        #: What was enqueued in it, where the connection itself does not tell of a rollback: ids and tasks.
        self.jobs: list[Written] = []
        listen()

    def __enter__(self) -> Any:
        self._tokens.append(_entered.set({**_entered.get(), id(self._app): self}))
        return self.connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            _entered.reset(self._tokens.pop())
        except ValueError:
            raise ConfigurationError(
                "app.transaction(…) was left in another context than it was entered in, so what was enqueued in between "
                "has not joined it. Web frameworks run a dependency that is a plain `def` in threads of its own: make it "
                "`async def`, or enter the transaction where you enqueue"
            ) from None
        if error is not None and self.jobs:
            log(self.jobs, f"gone if the transaction that ends with {type(error).__name__} is rolled back")
        self.jobs = []

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def ambient(app: Connections, named: Callable[[], Any] | None) -> Any:
    """Return the connection that a bare enqueue joins here and now, or None for dibs' own."""
    if (entered := _entered.get().get(id(app))) is not None:
        mind_the_commit(entered.connection)
        return entered.connection
    if named is None:
        return None
    from dibs.bindings.surroundings import has_begun

    connection = named()
    if connection is None or not has_begun(connection) or not _leads_here(app, connection):
        return None
    mind_the_commit(connection)
    return connection


def named_here(app: Connections, named: Callable[[], Any] | None) -> Any:
    """Return the connection that the app's callable names, begun or not, if it leads to the queue's database."""
    connection = None if named is None else named()
    return connection if connection is not None and _leads_here(app, connection) else None


def _leads_here(app: Connections, connection: Any) -> bool:
    from dibs.bindings.surroundings import address_of

    address = address_of(connection)
    if address is not None and address.leads_elsewhere(app.url):
        not_joined(app, address, app.url)
        return False
    return True


def remember(app: Connections, connection: Any, jobs: list[Written]) -> None:
    """Take note of jobs that were written over a connection of the user's, should it roll back."""
    untold = note(connection, jobs)
    if untold and (entered := _entered.get().get(id(app))) is not None and entered.connection is connection:
        entered.jobs += untold
