"""The ambient transaction: which connection a bare enqueue joins, when none was given.

The one of `with app.transaction(session):`, else the one that the app's callable names (`Dibs(connection=…)`) if a
transaction has begun on it and it leads to the queue's database, else one of dibs' own.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from dibs.bindings.leftovers import is_leftover, listen
from dibs.errors import ConfigurationError

if TYPE_CHECKING:
    from dibs.bindings.surroundings import Address
    from dibs.connections import Connections

logger = logging.getLogger("dibs")

#: For each app of this thread or task, by its identity: the connection whose transaction was entered last.
_entered: ContextVar[dict[int, Any]] = ContextVar("dibs_entered", default={})  # noqa: B039 - never changed in place

#: The lines of which was said that they enqueue after a commit.
_minded: set[str] = set()

#: The apps of which was said that the named connection leads elsewhere.
_said: WeakSet[Connections] = WeakSet()


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
        _mind_the_commit(entered)
        return entered
    if named is None or (connection := named()) is None:
        return None
    from dibs.bindings.surroundings import address_of, has_begun

    if not has_begun(connection):
        return None
    address = address_of(connection)
    if address is not None and address.leads_elsewhere(app.url):
        _say_once(app, address)
        return None
    _mind_the_commit(connection)
    return connection


def _mind_the_commit(connection: Any) -> None:
    """Warn, once for each line of the user's, of an enqueue in a transaction that nobody may commit."""
    if not is_leftover(connection):
        return
    place = _users_line()
    if place not in _minded:
        _minded.add(place)
        logger.warning(
            "%s enqueues after a commit of its session, in a new transaction that has written nothing: unless that is "
            "committed, too, there will be no job (enqueue before you commit, or using(own=True))",
            place,
        )


def _users_line() -> str:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dibs":
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno},"


def _say_once(app: Connections, address: Address) -> None:
    if app not in _said:
        _said.add(app)
        logger.warning(
            "the transactions of Dibs(connection=…) are in another database (%s) than the queue (%s): jobs are no part "
            "of them. If it is the same database at another address, say so with app.transaction(connection)",
            address,
            app.url,
        )
