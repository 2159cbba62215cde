"""Names the jobs that a rollback took away, where the user's connection tells of rollbacks: that is SQLAlchemy's."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dibs.bindings.surroundings import session_or_connection

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger("dibs")

#: How many jobs are named, at most.
MOST = 10

#: The jobs that were written in the transaction that is open on a connection.
_written: WeakKeyDictionary[Connection, list[str]] = WeakKeyDictionary()


def watch(connection: Any, jobs: Iterable[str]) -> None:
    """Log these jobs if the transaction is rolled back that they were just written in, or is never committed.

    Savepoints are not told apart: what was written inside one shares the fate of the whole, as far as this knows.
    """
    wanted = session_or_connection(connection)
    if wanted is None:
        return
    from sqlalchemy import event

    wanted = getattr(wanted, "sync_session", wanted)
    if hasattr(wanted, "get_bind"):
        wanted = wanted.connection()  # it has one by now, so this asks nobody
    current: Connection = getattr(wanted, "sync_connection", wanted)
    if not event.contains(current.engine, "rollback", _rolled_back):
        event.listen(current.engine, "commit", _committed)
        event.listen(current.engine, "rollback", _rolled_back)
    _written.setdefault(current, []).extend(jobs)


def _committed(connection: Connection) -> None:
    _written.pop(connection, None)


def _rolled_back(connection: Connection) -> None:
    if jobs := _written.pop(connection, None):
        named = ", ".join(jobs[:MOST]) + (f" and {len(jobs) - MOST} more" if len(jobs) > MOST else "")
        logger.warning(
            "%s: gone with the transaction that was joined, which was rolled back or not committed "
            "(enqueue before you commit)",
            named,
        )
