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

if TYPE_CHECKING:
    from dibs.connections import Connections

#: For each app of this thread or task, by its identity: the connection whose transaction was entered last.
_entered: ContextVar[dict[int, Any]] = ContextVar("dibs_entered", default={})  # noqa: B039 - never changed in place


class Transaction:
    """What `app.transaction(connection)` returns: while it is entered, enqueues of this app join the connection.

    Works as `with` and as `async with`. It neither begins nor ends anything on the connection: that stays yours.
    Leaving it raises ConfigurationError where it had no effect: it was entered in a context that nobody else is in.
    """

    def __init__(self, app: Connections, connection: Any) -> None:
        self._app = app
        self._connection = connection
        self._tokens: list[Token[dict[int, Any]]] = []
        listen()

    def __enter__(self) -> Any:
        self._tokens.append(_entered.set({**_entered.get(), id(self._app): self._connection}))
        return self._connection

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

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def ambient(app: Connections, named: Callable[[], Any] | None) -> Any:
    """Return the connection that a bare enqueue joins here and now, or None for dibs' own."""
    if (entered := _entered.get().get(id(app))) is not None:
        mind_the_commit(entered)
        return entered
    if named is None or (connection := named()) is None:
        return None
    from dibs.bindings.surroundings import address_of, has_begun

    if not has_begun(connection):
        return None
    address = address_of(connection)
    if address is not None and address.leads_elsewhere(app.url):
        not_joined(app, address, app.url)
        return None
    mind_the_commit(connection)
    return connection
