"""What every binding is: one kind of connection that answers one request.

A binding never begins, commits or rolls back; on a connection that the user brought that is the user's.
Connections that dibs opened itself can do more (`OwnConnection`): `store` decides when.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from dibs.ops import Request
from dibs.troubles import Trouble


class Binding(Protocol):
    """A blocking connection."""

    family: str  # the SQL it speaks, as `dialects` calls it

    def answer(self, request: Request) -> Any:
        """Send one request and return its answer; see `ops`. The driver's own errors come through."""

    @property
    def commits_alone(self) -> bool:
        """Would a statement sent now be committed by itself (autocommit, and no transaction open)?"""


class AsyncBinding(Protocol):
    """An async connection."""

    family: str

    async def answer(self, request: Request) -> Any: ...

    async def commits_alone(self) -> bool:
        """As `Binding.commits_alone`, but awaited: a session may have to open its connection to know."""


@runtime_checkable
class OwnConnection(Protocol):
    """A connection that dibs opened: blocking, in autocommit until `begin`. For one thread at a time."""

    family: str

    #: How many seconds to wait for an answer before the connection is taken for dead, though nobody closed it
    #: (a firewall that forgot it, a proxy that hangs). None waits for ever: for work that may take long.
    patience: float | None

    #: Does a pooler stand between? Then a session on the server may be somebody else's after each transaction.
    pooled: bool

    #: May it be open in this process when that forks? If not it is closed before, since its library keeps by the process
    #: what a child must not inherit.
    may_be_forked: bool

    @property
    def session(self) -> int | None:
        """What the server calls this connection, for whoever looks at it from there; None where that can't be known."""

    def answer(self, request: Request) -> Any: ...

    @property
    def commits_alone(self) -> bool: ...

    def begin(self, *, writes: bool = True) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Undo what was begun; without a transaction do nothing."""

    def prefer_indexes(self) -> None:
        """Have statements planned by the indexes, whatever the statistics say; where plans go by these at all."""

    def hear(self, timeout: float) -> list[str]:
        """Wait until the database tells something; return what it told, [] if nothing in `timeout` seconds.

        Only where the dialect has a `channel`, and after its `listen`.
        """

    def unasked(self) -> bool:
        """Has the other side sent something that nobody asked for, as it does when it hangs up? Costs no round trip."""

    def close(self) -> None:
        """Close it; never raises."""

    def trouble(self, error: BaseException) -> Trouble:
        """Say what kind of trouble an error of this driver is; LOST also if the connection is now useless."""
